"""Tests of tools/lessons.py and common/add_lesson.cmake on a course of two tiny lessons."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

from tools.course import ROOT
from tools.tests.small_course import HELLO, KERNEL, SmallCourse

RUNNER = ROOT / "tools" / "lessons.py"
SKIPPING = ('#include <cstdio>\n\nint main() {\n  std::fputs("no device here\\n", stderr);\n'
            "  return 77;\n}\n")
SLEEPING = "#include <unistd.h>\n\nint main() { sleep(321); }\n"


def last(text: str) -> str:
    return text.splitlines()[-1] if text else ""


def processes_in(directory: Path) -> list[str]:
    """The processes that were started from, or work on, something in the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and str(directory).encode() in \
                    (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            pass
    return found


@unittest.skipUnless(shutil.which("cmake"), "cmake was not found; install the Debian package cmake")
class Tests(unittest.TestCase):
    """`lessons.py test`. One course for all: each test puts back what it changed."""

    @classmethod
    def setUpClass(cls):
        cls.small = SmallCourse()
        cls.addClassCleanup(cls.small.close)
        cls.first = cls.small.call("test", LC_ALL="C", HOME="")

    def setUp(self):
        self.addCleanup(self.restore)

    def restore(self):
        self.small.lines.clear()
        for path in (*self.small.root.glob("chapter07/1[0-9]*"),
                     *self.small.root.glob("expected/chapter07/*"),
                     *self.small.root.glob("tools/tests/test_*.py")):
            path.unlink()
        self.small.add("chapter07/10_hello.cpp", HELLO)
        self.small.add("chapter07/11_again.cpp", HELLO)
        self.small.write("tools/tests/test_small.py",
                         "import unittest\n\n\nclass Small(unittest.TestCase):\n"
                         "    def test_it(self):\n        pass\n")

    def fails(self, said: str, counts: str, *options: str) -> None:
        status, out, err = self.small.call("test", *options)
        self.assertEqual(status, 1, out + err)
        self.assertIn(said, out)
        self.assertTrue(last(out).startswith(counts), out)

    def test_all_well(self):
        status, out, err = self.first
        self.assertEqual(status, 0, out + err)
        self.assertEqual(last(out), "4 passed, 0 failed, 0 skipped; kernels: 0 lessons on GPU, "
                                    "0 on CPU, 0 nowhere")
        self.assertNotIn("\x1b", out + err)

    def test_lessons_that_fail_or_skip(self):
        self.small.add("chapter07/10_hello.cpp", HELLO.replace("puts", "putz"))
        self.small.write("expected/chapter07/11_again.txt", "Hello\n")
        self.small.add("chapter07/12_missing.cpp", HELLO, expected=None)
        self.small.add("chapter07/13_skips.cpp", SKIPPING)
        status, out, _ = self.small.call("test")
        self.assertEqual(status, 1)
        for said in ("FAILED build\n", "FAILED 10.transcript\n", "FAILED 11.transcript\n",
                     "FAILED 12.transcript\n", "there is no such transcript",
                     "skipped: 13.transcript: no device here\n"):
            self.assertIn(said, out)
        self.assertTrue(last(out).startswith("1 passed, 4 failed, 1 skipped"), out)

    def test_a_warning_fails(self):
        self.small.add("chapter07/10_hello.cpp", HELLO.replace("{ ", "{ int unused; "))
        self.fails("warning: unused variable", "3 passed, 1 failed, 0 skipped")

    def test_modules_that_fail_crash_skip_or_hold_nothing(self):
        start = "import unittest\n\n\nclass Small(unittest.TestCase):\n    def test_it(self):\n"
        for name, text in {
            "fails": start + "        self.fail('because')\n",
            "crashes": start + "        import os; os._exit(0)\n",
            "skips": start + "        self.skipTest('no tool')\n",
            "parts": start + "        for n in range(3):\n            with self.subTest(n):\n"
                             "                self.assertLess(n, 1)\n",
            "imports": "import nothing_of_that_name\n",
            "empty": "",
        }.items():
            self.small.write(f"tools/tests/test_{name}.py", text)
        status, out, _ = self.small.call("test")
        self.assertEqual(status, 1)
        for said in ("because", "the module ended with status 0", "skips.Small.test_it: no tool",
                     "nothing_of_that_name", "nothing to test", "[1]", "[2]"):
            self.assertIn(said, out)
        self.assertTrue(last(out).startswith("4 passed, 5 failed, 1 skipped"), out)

    def test_nothing_to_test(self):
        self.small.lines.clear()
        self.small.write_list()
        self.fails("FAILED ctest", "2 passed, 1 failed, 0 skipped")

    def test_transcripts_that_cannot_be_run_are_a_failure(self):
        report = self.small.root / "build" / "ctest.xml"
        report.unlink(missing_ok=True)
        report.mkdir(parents=True)  # so that ctest cannot leave its report
        self.addCleanup(report.rmdir)
        self.fails("FAILED ctest", "2 passed, 1 failed, 0 skipped")

    def test_a_bad_header_is_one_line(self):
        self.small.write("chapter07/10_hello.cpp", "int main() {}\n")
        status, out, err = self.small.call("test")
        self.assertEqual((status, out, err.count("\n")), (2, "", 1))

    def test_cmake_builds_with_nvcc(self):
        nvcc = shutil.which("nvcc")
        if not nvcc:
            self.skipTest("nvcc is not installed (the CUDA toolkit)")
        self.small.add("chapter07/12_kernel.cu", KERNEL, labels="gpu")
        build = self.small.root / "with nvcc"
        for switch, said in (("ON", "CUDA: 12: built with nvcc"),
                             ("OFF", "CUDA: 12: left out, because NVCC_LESSONS is OFF")):
            done = subprocess.run(["cmake", "-S", self.small.root, "-B", build,
                                   f"-DNVCC_LESSONS={switch}"], capture_output=True, text=True,
                                  env=self.small.environment(CUDACXX=nvcc), check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(said, done.stdout)
            done = subprocess.run(["cmake", "--build", build], capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue((build / "chapter07/12_kernel").is_file())

    def test_without_a_working_nvcc(self):
        self.small.add("chapter07/12_kernel.cu", KERNEL, labels="gpu")
        status, out, _ = self.small.call("test")
        self.assertEqual(status, 0)
        self.assertRegex(out, "CUDA: 12: left out, because .*/nonexistent/nvcc does not work")
        self.assertTrue(last(out).endswith("0 on CPU, 1 nowhere"))
        self.fails("REQUIRE_CUDA is ON", "1 passed, 1 failed, 0 skipped", "--require-gpu")

    def test_interrupted_it_leaves_no_child_and_works_again(self):
        self.small.add("chapter07/11_again.cpp", SLEEPING)
        for number in (signal.SIGTERM, signal.SIGINT):
            process = self.small.start("test")
            program = self.small.root / "build" / "chapter07" / "11_again"
            for _ in range(400):
                if any(str(program).encode() == Path(f"/proc/{pid}/cmdline").read_bytes()
                       .rstrip(b"\0") for pid in processes_in(program)
                       if Path(f"/proc/{pid}/cmdline").exists()):
                    break
                time.sleep(0.05)
            else:
                self.fail("the lesson did not start")
            process.send_signal(number)
            process.communicate(timeout=20)
            self.assertNotEqual(process.returncode, 0)
            for _ in range(40):
                if not processes_in(program):
                    break
                time.sleep(0.05)
            self.assertEqual(processes_in(program), [])
        self.restore()
        self.assertEqual(self.small.call("test")[0], 0)

    def test_two_at_the_same_time(self):
        pair = [self.small.start("test") for _ in range(2)]
        ends = [process.communicate(timeout=120) for process in pair]
        self.assertEqual([process.returncode for process in pair], [0, 0], ends)
        self.assertTrue(any("waiting for it to end" in err for _, err in ends))

    def test_a_moved_checkout(self):
        moved = self.small.root.with_name("moved")
        self.small.root.rename(moved)
        before, self.small.root = self.small.root, moved
        try:
            status, out, err = self.small.call("test")
        finally:
            moved.rename(before)
            self.small.root = before
        self.assertEqual(status, 0, out + err)

    def test_a_checkout_that_cannot_be_written(self):
        build = self.small.root / "build"
        kept = build.rename(build.with_name("kept"))
        try:
            build.write_text("")  # Even root cannot make a directory here.
            status, out, err = self.small.call("test")
        finally:
            build.unlink()
            kept.rename(build)
        self.assertEqual(status, 0, out + err)
        self.assertIn("building in a temporary directory", err)
        self.assertNotIn("Traceback", err)


class ListAndRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.small = SmallCourse()
        cls.addClassCleanup(cls.small.close)

    def test_list(self):
        status, out, err = self.small.call("list")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"chapter07\n  10 +7\.1 +A lesson\n  11 +7\.1 +A lesson\n")

    def test_the_real_list_fits_80_columns(self):
        done = subprocess.run([sys.executable, RUNNER, "list"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80)

    def test_run_shows_title_and_output_in_reading_order(self):
        status, out, err = self.small.call("run")
        self.assertEqual(status, 0, out + err)
        self.assertEqual(re.findall(r"^chapter07/.*|^hello", out, re.MULTILINE),
                         ["chapter07/10_hello.cpp", "hello", "chapter07/11_again.cpp", "hello"])
        self.assertEqual(last(out), "2 of 2 lessons ran")
        self.assertNotIn("\x1b", out + err)
        status, out, _ = self.small.call("run", "11")
        self.assertEqual((status, out.count("hello\n"), last(out)), (0, 1, "1 of 1 lessons ran"))

    def test_run_of_what_is_not_there(self):
        status, out, err = self.small.call("run", "99")
        self.assertEqual((status, out, err.count("\n")), (2, "", 1))

    def test_run_tells_a_failure_and_goes_on(self):
        self.small.add("chapter07/10_hello.cpp", "int main() { return 3; }\n")
        self.addCleanup(self.small.add, "chapter07/10_hello.cpp", HELLO)
        status, out, err = self.small.call("run")
        self.assertEqual((status, last(out)), (1, "1 of 2 lessons ran; failed: 10"))
        self.assertIn("ended with status 3", err)

    def test_run_into_a_closed_pipe(self):
        done = subprocess.run(f"'{sys.executable}' tools/lessons.py run | head -1", shell=True,
                              cwd=self.small.root, capture_output=True, text=True)
        self.assertNotIn("Traceback", done.stderr)

    def test_missing_programs_are_one_line_with_the_package(self):
        for command in ("run", "test"):
            with self.subTest(command):
                status, out, err = self.small.call(command, PATH="/nonexistent")
                self.assertEqual((status, out, err.count("\n")), (2, "", 1))
                self.assertIn("the Debian package g++", err)
        compiler = self.small.root / "bin"
        compiler.mkdir()
        (compiler / "g++").symlink_to(shutil.which("g++"))
        status, out, err = self.small.call("test", PATH=str(compiler))
        self.assertEqual((status, out, err.count("\n")), (2, "", 1))
        self.assertIn("the Debian package cmake", err)

    def test_wrong_use(self):
        for arguments in ((), ("walk",), ("test", "-j", "0"), ("test", "--nothing")):
            with self.subTest(arguments):
                status, out, err = self.small.call(*arguments)
                self.assertEqual((status, out, err.count("\n")), (2, "", 1))
                self.assertIn("try --help", err)


class OldPython(unittest.TestCase):
    def test_an_old_python_can_read_the_file_and_says_what_is_needed(self):
        ast.parse(RUNNER.read_text(encoding="utf-8"), feature_version=(3, 6))
        program = ("import runpy, sys; sys.version_info = (3, 6, 9); "
                   f"runpy.run_path({str(RUNNER)!r}, run_name='__main__')")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1))
        self.assertIn("needs Python 3.10 or newer, and this is 3.6", done.stderr)


if __name__ == "__main__":
    unittest.main()
