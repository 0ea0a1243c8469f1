"""Every lesson with every compiler, standard, optimization and architecture that is claimed.

A part runs each time: all compilers, both standards and both ends of the optimization, though not
each with each. The long form has the whole matrix, the lessons that include CUB for all
architectures (each takes half a minute there), and the oldest CMake that we claim.

test_documented_lines builds each lesson as documented, so that line is not repeated here.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tools import check_transcript, course, cuda_on_cpu, kernel_tests
from tools.course import ROOT

LONG = bool(os.environ.get("LESSONS_LONG"))
LESSONS = course.lessons()
CUDA_LESSONS = [lesson for lesson in LESSONS if lesson.language == "cuda"]
WAYS = list(itertools.product(("c++17", "c++20"), ("-O0", "-O3")))
COMPILERS = {"g++": "g++", "clang++": "clang"}
ARCHITECTURES = (75, 80, 90)  # and the newest that nvcc knows
OLDEST_CMAKE = "3.22"
INCLUDES_CUB = re.compile(r"#include <cub/")
WARNINGS = ("-Wall", "-Wextra")


class Matrix(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory(prefix="matrix-")
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)

    def need(self, program: str, package: str) -> str:
        found = shutil.which(program)
        if not found:
            self.skipTest(f"{program} was not found; install the Debian package {package}")
        return found

    def silent(self, command: list, **options) -> None:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, cwd=self.directory, check=False, **options)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""),
                         " ".join(map(str, command)))

    def rewritten(self, lesson: course.Lesson) -> Path:
        target = self.directory / f"{lesson.stem}.cpp"
        target.write_text(cuda_on_cpu.rewrite_file(lesson.file, str(lesson.file)),
                          encoding="utf-8")
        return target


class Compilers(Matrix):
    """Each lesson alone, so that a header that another compiler forgave is missed."""

    def check(self, compiler: str) -> None:
        self.need(compiler, COMPILERS[compiler])
        for number, lesson in enumerate(LESSONS):
            for standard, level in WAYS if LONG else (WAYS[number % len(WAYS)],):
                with self.subTest(f"{lesson.id}: {compiler} {standard} {level}"):
                    if lesson.language == "c++":
                        self.run_lesson(lesson, compiler, standard, level)
                    elif LONG or compiler == "clang++":
                        self.silent([compiler, "-std=c++20", level, *WARNINGS,
                                     "-Wno-unknown-pragmas", f"-I{cuda_on_cpu.INCLUDE}",
                                     "-fsyntax-only", self.rewritten(lesson)])

    def run_lesson(self, lesson: course.Lesson, compiler: str, standard: str, level: str) -> None:
        program = self.directory / lesson.program
        self.silent([compiler, f"-std={standard}", level, *WARNINGS, lesson.file, "-o", program])
        outcome = check_transcript.run_program([str(program)], 60)
        verdict = check_transcript.judge(outcome, course.read_text(ROOT / lesson.transcript),
                                         lesson.stderr, False, False, False)
        self.assertEqual(verdict.status, check_transcript.PASSED, "\n".join(verdict.lines))

    def test_every_lesson_with_every_compiler(self) -> None:
        for compiler in COMPILERS:
            if shutil.which(compiler):
                self.check(compiler)
        for compiler in COMPILERS:  # A missing one is told when the others have been tried.
            self.need(compiler, COMPILERS[compiler])

    def test_a_missing_header_is_noticed(self) -> None:
        compiler = self.need("g++", "g++")
        lesson = course.find("40")[0]
        text = course.read_text(lesson.file).replace("#include <vector>\n", "")
        copy = self.directory / lesson.path.name
        copy.write_text(text, encoding="utf-8")
        done = subprocess.run([compiler, "-std=c++17", "-fsyntax-only", copy], capture_output=True,
                              check=False)
        self.assertNotEqual(done.returncode, 0)


class OnCpu(Matrix):
    """Whether a plain char has a sign is up to the compiler and the machine."""

    def check(self, stem: str, *modes: str) -> None:
        compiler = "g++" if shutil.which("g++") else "clang++"
        self.need(compiler, COMPILERS[compiler])
        lesson = course.find(stem)[0]
        build = cuda_on_cpu.Build(compiler, boost=cuda_on_cpu.has_boost_context(compiler))
        runtime = cuda_on_cpu.build_runtime(build)
        test = self.directory / "test.cpp"
        harness = kernel_tests.harness(lesson)
        test.write_text(cuda_on_cpu.rewrite_file(harness, str(harness)), encoding="utf-8")
        for option in modes:
            with self.subTest(f"{stem} {option}"):
                program = self.directory / "test"
                self.silent([compiler, *build.program_flags(), option,
                             f'-DLESSON_FILE="{self.rewritten(lesson)}"',
                             *(f"-D{define}" for define in
                               kernel_tests.DEFINES.get(lesson.stem, ())),
                             f"-iquote{harness.parent}", test, "-o", program, runtime,
                             *build.link_flags()])
                outcome = kernel_tests.run(program, "small" if LONG else "tiny")
                self.assertEqual(outcome.status, 0, kernel_tests.said(outcome))

    def test_bytes_with_signed_and_unsigned_char(self) -> None:
        stems = [lesson.stem for lesson in LESSONS
                 if "unsigned char" in course.read_text(lesson.file)]
        self.assertIn("histogram", stems)
        for stem in stems if LONG else ("histogram",):
            self.check(stem, "-fsigned-char", "-funsigned-char")


class Nvcc(Matrix):
    def architectures(self, nvcc: str) -> list[int]:
        known = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True,
                               check=True).stdout
        numbers = [int(number) for number in re.findall(r"sm_(\d+)\b", known)]
        return [number for number in ARCHITECTURES if number in numbers] + [max(numbers)]

    def check(self, lesson: course.Lesson, standard: str, level: str) -> None:
        """Device code for all architectures in one call; the host's part is built elsewhere."""
        nvcc = self.need("nvcc", "nvidia-cuda-toolkit")
        targets = [f"-gencode=arch=compute_{number},code=sm_{number}"
                   for number in self.architectures(nvcc)]
        with self.subTest(f"{lesson.id}: {standard} {level}"):
            self.silent([nvcc, f"-std={standard}", f"-Xptxas={level}", "-fatbin", *targets,
                         lesson.file, "-o", self.directory / "code.fatbin"])

    def test_every_architecture(self) -> None:
        lessons = [lesson for lesson in CUDA_LESSONS
                   if not INCLUDES_CUB.search(course.read_text(lesson.file))]
        for number, lesson in enumerate(lessons):
            self.check(lesson, *WAYS[number % len(WAYS)])


class InFull(Nvcc):
    """Only in the long form."""

    def test_every_architecture(self) -> None:
        for lesson, way in itertools.product(CUDA_LESSONS, WAYS):
            self.check(lesson, *way)

    def test_the_oldest_cmake(self) -> None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
        packages = self.directory / "packages"
        done = subprocess.run([*pip, "install", "--target", packages, f"cmake=={OLDEST_CMAKE}.*"],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.skipTest(f"CMake {OLDEST_CMAKE} could not be installed by pip")
        home = packages / "cmake" / "data" / "bin"
        build = self.directory / "build"
        environment = {**os.environ, "CUDACXX": "/nonexistent/nvcc"}
        for command in ([home / "cmake", "--version"],
                        [home / "cmake", "-S", ROOT, "-B", build],
                        [home / "cmake", "--build", build, "-j2"],
                        [home / "ctest", "--test-dir", build, "--no-tests=error", "-j2"]):
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                                  env=environment, check=False)
            self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])
            if "--version" in command:
                self.assertIn(f"cmake version {OLDEST_CMAKE}.", done.stdout)


class Claims(unittest.TestCase):
    def test_the_oldest_cmake_is_the_one_that_is_tried(self) -> None:
        for path in (ROOT / "CMakeLists.txt", *(ROOT / "common").rglob("*.cmake")):
            for version in re.findall(r"cmake_minimum_required\(VERSION ([\d.]+)",
                                      path.read_text(encoding="utf-8")):
                self.assertEqual(version, OLDEST_CMAKE, path.name)


def load_tests(loader: unittest.TestLoader, _tests: unittest.TestSuite,
               _pattern: str | None) -> unittest.TestSuite:
    cases = [Compilers, OnCpu, Claims, InFull if LONG else Nvcc]
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)


if __name__ == "__main__":
    unittest.main()
