"""Static checks of every C++, CUDA and Python file, where the tools are installed.

cppcheck sees everything, .cu files as the C++ that the CPU runtime makes of them. clang-tidy, with
the checks of .clang-tidy, is slow: the C++ lessons each time, in the long form all the rest but the
kernel tests, which are no files of their own: each includes a lesson.
"""

from __future__ import annotations

import ast
import concurrent.futures
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

from tools import course, cuda_on_cpu
from tools.course import ROOT

LONG = bool(os.environ.get("LESSONS_LONG"))
LESSONS = course.lessons()
RUNTIME = sorted((ROOT / "common" / "cuda_on_cpu" / "source").glob("*.cpp"))
HARNESS = ROOT / "tools" / "tests" / "kernels"
KERNEL_TESTS = sorted(HARNESS.glob("*.c*"))
PROBES = sorted((ROOT / "tools").glob("*.cu"))
PYTHON = sorted((ROOT / "tools").rglob("*.py"))

# What cppcheck 2.10 gets wrong, and why it is wrong.
SUPPRESSED = {
    "constStatement": "it takes the braces of std::size_t{blockIdx.x} for a block",
    "uninitvar:*launch.cpp": "the same, in a statement that sets the variable it misses",
    "ctuOneDefinitionRuleViolation": "each lesson is a program of its own",
    "uninitMemberVar": "the runtime's large arrays are filled for each block, not when made",
}
# The few words of CUDA that it needs to know. What is shared is not uninitialized by nature.
WORDS = ("__global__=", "__device__=", "__host__=", "__shared__=static", "__constant__=",
         "__launch_bounds__(...)=", "__forceinline__=", "__restrict__=")


class Lint(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory(prefix="lint-")
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)

    def need(self, program: str) -> str:
        found = shutil.which(program)
        if not found:
            self.skipTest(f"{program} was not found; install the Debian package {program}")
        return found

    def as_cpp(self, path: Path) -> Path:
        """A .cu file as C++; its messages still name the .cu file."""
        if path.suffix != ".cu":
            return path
        target = self.directory / f"{path.parent.name}-{path.stem}.cpp"
        target.write_text(cuda_on_cpu.rewrite_file(path, str(path.relative_to(ROOT))),
                          encoding="utf-8")
        return target

    def run_cppcheck(self, files: list[Path]) -> str:
        done = subprocess.run(
            [self.need("cppcheck"), "--std=c++17", "--language=c++", "--quiet",
             "--enable=warning,performance,portability", "--template=gcc",
             f"-I{HARNESS}", *(f"-D{word}" for word in WORDS),
             *(f"--suppress={name}" for name in SUPPRESSED), *map(str, files)],
            capture_output=True, text=True, check=False)
        return (done.stdout + done.stderr).strip()

    def run_clang_tidy(self, files: list[Path]) -> str:
        tidy = self.need("clang-tidy")

        def one(path: Path) -> str:
            done = subprocess.run(
                [tidy, "--quiet", f"--config-file={ROOT / '.clang-tidy'}", self.as_cpp(path), "--",
                 "-std=c++17", "-Wno-unknown-pragmas", f"-I{cuda_on_cpu.INCLUDE}"],
                capture_output=True, text=True, check=False)
            return done.stdout.strip() or ("" if done.returncode == 0 else done.stderr.strip())

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return "\n".join(text for text in pool.map(one, files) if text)


class Cpp(Lint):
    def test_cppcheck(self) -> None:
        files = [*(lesson.file for lesson in LESSONS), *PROBES, *KERNEL_TESTS, *RUNTIME]
        self.assertEqual(self.run_cppcheck([self.as_cpp(path) for path in files]), "")

    def test_cppcheck_finds_something(self) -> None:
        path = self.directory / "x.cpp"
        path.write_text("int f() {\n  int a[2] = {1, 2};\n  return a[2];\n}\n", encoding="utf-8")
        self.assertIn("arrayIndexOutOfBounds", self.run_cppcheck([path]))

    def test_clang_tidy(self) -> None:
        files = [lesson.file for lesson in LESSONS if LONG or lesson.language == "c++"]
        self.assertEqual(self.run_clang_tidy(files + (PROBES + RUNTIME if LONG else [])), "")

    def test_clang_tidy_finds_something(self) -> None:
        path = self.directory / "x.cpp"
        path.write_text("int f(int a) {\n  int none = 0;\n  return a / none;\n}\n",
                        encoding="utf-8")
        self.assertIn("DivideZero", self.run_clang_tidy([path]))


class Python(Lint):
    def test_every_file_compiles_without_a_warning(self) -> None:
        for path in PYTHON:
            with self.subTest(path.name), warnings.catch_warnings():
                warnings.simplefilter("error")
                compile(path.read_text(encoding="utf-8"), str(path), "exec")

    def test_only_the_standard_library_is_imported(self) -> None:
        """matplotlib is for the plots alone, which say what to install."""
        for path in PYTHON:
            names = set()
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    names |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.add(node.module.split(".")[0])
            with self.subTest(path.name):
                self.assertEqual(names - set(sys.stdlib_module_names)
                                 - {"tools", "matplotlib", "PIL"}, set())

    def test_pyflakes(self) -> None:
        if importlib.util.find_spec("pyflakes"):
            command = [sys.executable, "-m", "pyflakes"]
        elif shutil.which("pyflakes3"):
            command = ["pyflakes3"]
        else:
            self.skipTest("pyflakes was not found; install the Debian package pyflakes3")
        done = subprocess.run([*command, *map(str, PYTHON)], capture_output=True, text=True,
                              check=False)
        lines = (done.stdout + done.stderr).splitlines()
        self.assertEqual([line for line in lines if not self.is_declared(line)], [])

    @staticmethod
    def is_declared(line: str) -> bool:
        """pyflakes does not count `name: type` as a definition, where setUpModule() sets it."""
        path, _, message = line.partition(":")
        name = message.partition("undefined name '")[2].rstrip("'")
        return bool(name) and any(
            isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == name
            for node in ast.parse(Path(path).read_text(encoding="utf-8")).body)


if __name__ == "__main__":
    unittest.main()
