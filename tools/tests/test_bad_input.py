"""The tools under bad input: one clear line each, the right exit status, and nothing lost.

The tests of each tool hold what belongs to it alone. Here are the cases that all share: files that
cannot be read, floods, full disks, signals at random moments, two at the same time, odd paths.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from tools import cuda_on_cpu, plant_faults
from tools.course import ROOT
from tools.tests.small_course import SmallCourse

SEED = 20261130
LONG = bool(os.environ.get("LESSONS_LONG"))
# A block that sync_docs.py would fill, as printf takes it.
BLOCK = "<!-- transcript: chapter07/40_histogram_cpu_baseline.txt -->\\n<!-- end -->\\n"
KERNEL = """#include <cuda_runtime.h>
#include <cstdio>
__global__ void one(int* out) { *out = 1; }
int main() {
  int *d = nullptr, h = 0;
  if (cudaMalloc(&d, 4) != cudaSuccess) return 1;
  one<<<1, 1>>>(d);
  if (cudaMemcpy(&h, d, 4, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  std::printf("%d\\n", h);
  return cudaFree(d) == cudaSuccess && h == 1 ? 0 : 1;
}
"""

# Each tool with the arguments that make it read one file.
READERS = {
    "lessons.py": lambda path: ["run", path],
    "record_counters.py": lambda path: [path],
    "compute_sanitizer.py": lambda path: [path],
    "kernel_tests.py": lambda path: [path],
    "plant_faults.py": lambda path: [path],
    "evidence.py": lambda path: [path],
    "check_transcript.py": lambda path: [path, "--", "true"],
    "cuda_on_cpu.py": lambda path: [path],
    "check_evidence.py": lambda path: [path],
    "plot_evidence.py": lambda path: [path],
    "sync_docs.py": lambda path: ["--check", path],
    "explorer_link.py": lambda path: [path],
    "record_evidence.py": lambda path: [path],
    "course.py": lambda path: ["--cmake", path],
    "check_figures.py": lambda path: [path],
}
STATUSES = (1, 2)  # 1: looked at and found bad, 2: wrong use
# What prints something when all is well, and does it soon.
PRINTERS = (
    "course.py", "lessons.py list", "explorer_link.py 20", "evidence.py", "plant_faults.py --list",
    "check_transcript.py --masks", "check_figures.py LICENSE")


def tool(name: str, *arguments: object) -> list[str]:
    return [sys.executable, "-B", str(ROOT / "tools" / name), *map(str, arguments)]


class BadInput(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory(prefix="bad-input-")
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)

    def call(self, command: list[str], **options) -> tuple[int, str, str]:
        options.setdefault("cwd", self.directory)
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False,
                              timeout=120, **options)
        return (done.returncode, done.stdout.decode("utf-8", "replace"),
                done.stderr.decode("utf-8", "replace"))

    def file(self, name: str, content: bytes | str) -> Path:
        path = self.directory / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def expect_one_line(self, command: list[str], *words: str, **options) -> None:
        status, out, err = self.call(command, **options)
        self.assertIn(status, STATUSES, out + err)
        self.assertNotIn("Traceback", out + err)
        self.assertEqual((out, err.count("\n")), ("", 1), out + err)
        for word in words:
            self.assertIn(word, err)


class Options(BadInput):
    def test_a_wrong_option(self) -> None:
        for path in sorted((ROOT / "tools").glob("*.py")):
            if path.name != "__init__.py":
                with self.subTest(path.name):
                    status, out, err = self.call(tool(path.name, "--no-such-option"))
                    self.assertEqual((status, out, err.count("\n")), (2, "", 1), err)
                    self.assertRegex(err, rf"^{path.name}: .*; try --help$")


class Files(BadInput):
    def each_reader(self, path: Path, *words: str, but: tuple[str, ...] = ()) -> None:
        for name, arguments in READERS.items():
            if name not in but:
                with self.subTest(name):
                    self.expect_one_line(tool(name, *arguments(path)), *words)

    def test_a_missing_file(self) -> None:
        self.each_reader(self.directory / "missing.cu", "missing.cu")

    def test_a_directory(self) -> None:
        path = self.directory / "folder.cu"
        path.mkdir()
        self.each_reader(path, "folder.cu")

    def test_a_loop_of_links(self) -> None:
        path = self.directory / "loop.cu"
        path.symlink_to(path)
        self.each_reader(path, "loop.cu")

    def test_a_binary_file(self) -> None:
        path = self.file("binary.cu", bytes(range(256)) * 16)
        self.each_reader(path, "binary.cu", but=("cuda_on_cpu.py",))
        self.expect_one_line(tool("cuda_on_cpu.py", path), "binary.cu", "UTF-8")

    def test_invalid_utf8(self) -> None:
        path = self.file("latin.cu", "// gr\u00fc\u00dfe\n".encode("latin-1"))
        self.each_reader(path, "latin.cu")

    def test_no_permission(self) -> None:
        """Root may read everything, so the tool runs as nobody, where there is a way to do so."""
        prefix: list[str] = []
        python = sys.executable
        if os.geteuid() == 0:
            python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or ""
            prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            if not shutil.which("setpriv") or not python:
                self.skipTest("root may read all files, and there is no setpriv to become another "
                              "user; install the Debian package util-linux")
        path = self.file("secret.txt", "hello\n")
        copy = self.directory / "tools"
        copy.mkdir()
        for name in ("__init__.py", "check_transcript.py", "course.py"):
            shutil.copy(ROOT / "tools" / name, copy)
        self.directory.chmod(0o755)
        probe = [*prefix, python, "-B", copy / "check_transcript.py", "--masks"]
        try:
            if self.call([str(word) for word in probe])[0] != 0:
                self.skipTest("another user cannot run Python in the temporary directory here")
        except OSError:
            self.skipTest("becoming another user is not allowed here")
        path.chmod(0)
        self.expect_one_line([str(word) for word in (*probe[:-1], path, "--", "true")],
                             "secret.txt", "Permission denied")


class Output(BadInput):
    """Where what a tool prints cannot be written."""

    def into(self, name: str, stdout: object) -> tuple[int, str]:
        done = subprocess.run(tool(*name.split()), stdout=stdout, stderr=subprocess.PIPE, text=True,
                              cwd=ROOT, timeout=60, check=False)
        return done.returncode, done.stderr

    def test_a_full_disk(self) -> None:
        for name in (*PRINTERS, "check_evidence.py"):
            with self.subTest(name), open("/dev/full", "wb") as full:
                self.assertEqual(self.into(name, full), (
                    1, f"{name.split()[0]}: No space left on device\n"))

    def test_a_pipe_that_nobody_reads(self) -> None:
        """Not worth a word, as after `... | head -1`."""
        for name in (*PRINTERS, "check_evidence.py"):
            reader, writer = os.pipe()
            os.close(reader)
            with self.subTest(name), open(writer, "wb") as pipe:
                self.assertEqual(self.into(name, pipe), (1, ""))

    def test_no_stdout_at_all(self) -> None:
        for name in PRINTERS:
            with self.subTest(name):
                command = " ".join(f"'{word}'" for word in tool(*name.split()))
                self.assertEqual(self.call(["sh", "-c", f"{command} >&-"], cwd=ROOT), (0, "", ""))

    def test_a_folder_that_is_not_there(self) -> None:
        kernel, text = self.file("one.cu", KERNEL), self.file("expected.txt", "hello\n")
        missing = self.directory / "missing" / "file"
        for command in (tool("cuda_on_cpu.py", "--rewrite", kernel, missing),
                        tool("check_transcript.py", "--accept", missing, "--", "echo", "hello"),
                        tool("check_transcript.py", "--values", missing, text, "--", "echo",
                             "hello"),
                        tool("run_test_module.py", "tools.tests.test_formatting", missing)):
            with self.subTest(command[2]):
                self.expect_one_line(command, "missing", "No such file or directory")

    def test_a_folder_in_the_place_of_a_file(self) -> None:
        kernel, folder = self.file("one.cu", KERNEL), self.directory / "folder"
        folder.mkdir()
        self.expect_one_line(tool("cuda_on_cpu.py", "--rewrite", kernel, folder),
                             "cuda_on_cpu.py: ", f"{folder}: Is a directory")
        self.assertEqual(sorted(path.name for path in self.directory.iterdir()),
                         ["folder", "one.cu"])


class Programs(BadInput):
    """What the transcript check has to survive."""

    def check(self, program: str, *options: str) -> tuple[int, str, float]:
        expected = self.file("expected.txt", "hello\n")
        start = time.monotonic()
        status, out, err = self.call(tool("check_transcript.py", "--timeout", "20", *options,
                                          expected, "--", sys.executable, "-c", program))
        self.assertNotIn("Traceback", err)
        self.assertEqual(expected.read_text(), "hello\n")
        return status, out, time.monotonic() - start

    def test_a_hundred_megabytes(self) -> None:
        for stream in ("stdout", "stderr"):
            status, out, seconds = self.check(
                f"import sys\nfor _ in range(100): sys.{stream}.write('x' * 999_999 + '\\n')")
            self.assertEqual(status, 1)
            self.assertIn(f"bytes on {stream} and was stopped", out)
            self.assertLess(len(out), 10_000)
            self.assertLess(seconds, 15)

    def test_a_hundred_megabytes_are_not_accepted(self) -> None:
        status, out, _ = self.check("print('x' * 100_000_000)", "--accept")
        self.assertEqual(status, 1)
        self.assertIn("not accepted", out)

    def test_one_that_forks_and_hangs(self) -> None:
        """The child closes nothing; the parent has ended in good order."""
        mark = f"hang-{os.getpid()}"
        status, out, seconds = self.check(
            "import os, time\nprint('hello', flush=True)\n"
            f"if os.fork() == 0:\n    '{mark}'; time.sleep(300)")
        self.assertEqual(status, 1)
        self.assertIn("left a process behind", out)
        self.assertLess(seconds, 15)
        listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True,
                                 check=False).stdout if shutil.which("ps") else ""
        self.assertNotIn(mark, "\n".join(line for line in listing.splitlines()
                                         if "ps -eo" not in line))

    def test_one_that_leaves_its_session(self) -> None:
        """It cannot be ended with its group; all the same the check does not wait for it."""
        status, out, seconds = self.check(
            "import os, time\nprint('hello', flush=True)\n"
            "if os.fork() == 0:\n    os.setsid()\n    time.sleep(8)")
        self.assertEqual(status, 1)
        self.assertIn("left a process behind", out)
        self.assertLess(seconds, 7)


    def test_a_command_that_a_page_quotes(self) -> None:
        """sync_docs.py runs it; it leaves a child that keeps its output open."""
        script = self.file("hang.py", "import os, time\nprint('hello', flush=True)\n"
                           "if os.fork() == 0:\n    time.sleep(20)\n")
        page = self.file("page.md", f"<!-- run: python3 {script} | hello -->\n<!-- end -->\n")
        before = page.read_text()
        self.expect_one_line(tool("sync_docs.py", "--runs", page), "page.md:1", "left a process")
        self.assertEqual(page.read_text(), before)

    def test_nothing_to_compile_with_and_nothing_to_test(self) -> None:
        kernel = self.file("one.cu", KERNEL)
        self.expect_one_line(tool("cuda_on_cpu.py", kernel), "there is no g++", "Debian package",
                             env={**os.environ, "PATH": "/nonexistent", "CXX": ""})
        self.expect_one_line(tool("kernel_tests.py", "40"), "no .cu lesson is selected")
        self.expect_one_line(tool("compute_sanitizer.py", "--jobs", "0"), "--jobs")


class FullDisk(BadInput):
    """In a mount namespace of our own, with a file system of 64 KiB."""

    def in_small_disk(self, script: str, options: str = "size=64k") -> tuple[int, str, str]:
        if not shutil.which("unshare"):
            self.skipTest("there is no unshare; install the Debian package util-linux")
        disk = self.directory / "disk"
        disk.mkdir(exist_ok=True)
        inside = f"mount -t tmpfs -o {options} none '{disk}' || exit 99\ncd '{disk}'\n{script}"
        status, out, err = self.call(["unshare", "-rm", "sh", "-c", inside])
        if status == 99 or "unshare" in err:
            self.skipTest("mounting a small file system is not allowed here")
        return status, out, err

    def test_accept_keeps_the_old_transcript(self) -> None:
        quoted = " ".join(f"'{word}'" for word in tool("check_transcript.py", "--accept",
                                                       "old.txt", "--"))
        status, out, err = self.in_small_disk(
            "echo old >old.txt\nhead -c 100000 /dev/zero >filler 2>/dev/null\n"
            f"{quoted} '{sys.executable}' -c \"print('new' * 9000)\"\n"
            "echo status $?; cat old.txt; ls -A")
        self.assertEqual(status, 0, err)
        self.assertNotIn("Traceback", err)
        self.assertIn("No space left on device", err)
        self.assertIn("status 2\nold\n", out)
        self.assertEqual(out.splitlines()[-2:], ["filler", "old.txt"])

    def test_pages_are_kept(self) -> None:
        page = f"# A page\\n\\n{BLOCK}"
        quoted = " ".join(f"'{word}'" for word in tool("sync_docs.py"))
        status, out, err = self.in_small_disk(
            f"printf '{page}' >page.md\ncp page.md /tmp/page.$$\n"
            "head -c 100000 /dev/zero >filler 2>/dev/null\n"
            f"{quoted} page.md\necho status $?\n"
            "cmp page.md /tmp/page.$$ && echo kept\nrm /tmp/page.$$; ls -A")
        self.assertNotIn("Traceback", err)
        self.assertIn("No space left on device", err)
        self.assertIn("kept", out)
        self.assertNotIn("status 0", out)
        self.assertEqual(out.splitlines()[-2:], ["filler", "page.md"])

    def test_no_room_to_build(self) -> None:
        kernel = self.file("one.cu", KERNEL)
        quoted = " ".join(f"'{word}'" for word in tool("cuda_on_cpu.py", kernel))
        status, out, err = self.in_small_disk(
            f"export TMPDIR=$PWD CUDA_ON_CPU_CACHE='{cuda_on_cpu.cache_directory()}'\n"
            f"{quoted}\necho status $?; ls -A")
        self.assertNotIn("Traceback", err)
        self.assertNotIn("status 0", out)
        self.assertRegex(err, "(?i)no space left")
        self.assertEqual([line for line in out.splitlines() if "cuda_on_cpu-" in line], [])

    def test_a_page_on_a_read_only_disk(self) -> None:
        quoted = " ".join(f"'{word}'" for word in tool("sync_docs.py"))
        status, out, err = self.in_small_disk(
            f"printf '{BLOCK}' >page.md\n"
            f"mount -o remount,ro '{self.directory / 'disk'}' || exit 99\n"
            f"{quoted} page.md; echo status $?; cat page.md")
        self.assertNotIn("Traceback", err)
        self.assertNotIn("status 0", out)
        self.assertIn("Read-only file system", err)
        self.assertEqual(len(err.splitlines()), 1, err)


    def test_a_checkout_that_cannot_be_written(self) -> None:
        quoted = " ".join(f"'{word}'" for word in (sys.executable, "-B"))
        status, out, err = self.in_small_disk(
            f"mount --bind '{ROOT}' '{self.directory / 'disk'}' || exit 99\n"
            f"mount -o remount,bind,ro '{self.directory / 'disk'}' || exit 99\n"
            f"cd '{self.directory / 'disk'}'\n"
            f"for command in 'lessons.py run 40' 'sync_docs.py LICENSE' course.py; do\n"
            f"  {quoted} tools/$command >/dev/null || echo $command: $?\ndone\n"
            f"expected=expected/chapter07/40_histogram_cpu_baseline.txt\n"
            f"{quoted} tools/check_transcript.py --accept $expected -- echo other; echo status $?")
        self.assertEqual((status, out), (0, "status 2\n"), err)
        self.assertNotIn("Traceback", err)
        self.assertIn("Read-only file system", err)


class Signals(BadInput):
    """Ended at random moments, always the same ones."""

    def interrupt(self, command: list[str], seconds: float, number: int,
                  env: dict | None = None) -> int:
        process = subprocess.Popen(command, cwd=self.directory, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        _, err = process.communicate(timeout=60)
        self.assertNotIn(b"Traceback", err)
        return process.returncode

    def test_a_transcript_is_the_old_one_or_the_new_one(self) -> None:
        moments = random.Random(SEED)
        new = "new\n" * 2000
        program = ("import sys, time\nfor _ in range(20):\n"
                   "    sys.stdout.write('new\\n' * 100); sys.stdout.flush(); time.sleep(0.01)")
        for number in (signal.SIGTERM, signal.SIGKILL) * 5:
            expected = self.file("expected.txt", "old\n")
            self.interrupt(tool("check_transcript.py", "--accept", expected, "--",
                                sys.executable, "-c", program), moments.uniform(0.05, 0.7), number)
            self.assertIn(expected.read_text(), ("old\n", new))
            left = [path.name for path in self.directory.iterdir() if path != expected]
            if number == signal.SIGTERM:
                self.assertEqual(left, [])
            for name in left:  # SIGKILL lets nobody tidy up; the transcript itself is whole.
                (self.directory / name).unlink()

    def test_a_page_is_the_old_one_or_the_new_one(self) -> None:
        moments = random.Random(SEED)
        old = BLOCK.replace("\\n", "\n") * 300
        page = self.file("page.md", old)
        self.assertEqual(self.call(tool("sync_docs.py", page))[0], 0)
        new = page.read_text()
        self.assertNotEqual(new, old)
        for number in (signal.SIGTERM, signal.SIGKILL) * 5:
            page.write_text(old)
            self.interrupt(tool("sync_docs.py", page), moments.uniform(0.05, 0.4), number)
            self.assertIn(page.read_text(), (old, new))
            left = [path for path in self.directory.iterdir() if path != page]
            if number == signal.SIGTERM:
                self.assertEqual(left, [])
            for path in left:
                path.unlink()

    def test_a_build_for_the_cpu_leaves_nothing(self) -> None:
        moments = random.Random(SEED)
        kernel = self.file("one.cu", KERNEL)
        scratch = self.directory / "scratch"
        scratch.mkdir()
        environment = {**os.environ, "TMPDIR": str(scratch),
                       "CUDA_ON_CPU_CACHE": str(cuda_on_cpu.cache_directory())}
        for _ in range(4):
            status = self.interrupt(tool("cuda_on_cpu.py", kernel), moments.uniform(0.1, 1.2),
                                    signal.SIGTERM, environment)
            self.assertIn(status, (0, 128 + signal.SIGTERM, -signal.SIGTERM))
            self.assertEqual([path.name for path in scratch.iterdir()], [])
        # Whatever was interrupted, the next run is as if nothing had happened.
        status, out, err = self.call(tool("cuda_on_cpu.py", kernel), env=environment)
        self.assertEqual((status, out), (0, "1\n"), err)


class Together(BadInput):
    def test_two_accept_the_same_transcript(self) -> None:
        expected = self.file("expected.txt", "old\n")
        texts = [letter * 50_000 for letter in "ab"]
        processes = [subprocess.Popen(
            tool("check_transcript.py", "--accept", expected, "--", sys.executable, "-c",
                 f"print('{letter}' * 50_000)"), stdout=subprocess.DEVNULL) for letter in "ab"]
        self.assertEqual([process.wait(60) for process in processes], [0, 0])
        self.assertIn(expected.read_text().strip(), texts)
        self.assertEqual([path.name for path in self.directory.iterdir()], ["expected.txt"])

    def test_two_renew_the_same_page(self) -> None:
        page = self.file("page.md", BLOCK.replace("\\n", "\n"))
        processes = [subprocess.Popen(tool("sync_docs.py", page), stdout=subprocess.DEVNULL)
                     for _ in range(2)]
        self.assertEqual([process.wait(60) for process in processes], [0, 0])
        self.assertEqual(self.call(tool("sync_docs.py", "--check", page)), (0, "", ""))
        self.assertEqual([path.name for path in self.directory.iterdir()], ["page.md"])

    def test_two_build_for_the_cpu(self) -> None:
        """In the long form with an empty cache: to fill it takes half a minute."""
        kernel = self.file("one.cu", KERNEL)
        cache = self.directory / "cache" if LONG else cuda_on_cpu.cache_directory()
        environment = {**os.environ, "CUDA_ON_CPU_CACHE": str(cache)}
        processes = [subprocess.Popen(tool("cuda_on_cpu.py", kernel), stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, env=environment)
                     for _ in range(2)]
        self.assertEqual([process.communicate(timeout=120)[0] for process in processes],
                         [b"1\n", b"1\n"])
        self.assertEqual([process.returncode for process in processes], [0, 0])
        self.assertEqual({path.suffix for path in cache.iterdir()} - {""}, {".a"})


class Surroundings(BadInput):
    def test_blanks_and_letters_beyond_ascii_in_paths(self) -> None:
        folder = self.directory / "a folder \u00e9\u4e2d"
        folder.mkdir()
        kernel = folder / "one kernel \u00fc.cu"
        kernel.write_text(KERNEL, encoding="utf-8")
        expected = folder / "expected \u00f6.txt"
        expected.write_text("1\n", encoding="utf-8")
        for locale in ("C", "C.UTF-8"):
            environment = {**os.environ, "LC_ALL": locale, "TMPDIR": str(folder),
                           "CUDA_ON_CPU_CACHE": str(cuda_on_cpu.cache_directory())}
            with self.subTest(locale):
                status, out, err = self.call(tool(
                    "check_transcript.py", "--cpu-runtime", expected, "--",
                    *tool("cuda_on_cpu.py", kernel)), env=environment)
                self.assertEqual(status, 0, out + err)

    def test_without_a_home(self) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "HOME"}
        kernel = self.file("one.cu", KERNEL)
        status, out, err = self.call(tool("cuda_on_cpu.py", kernel), env=environment)
        self.assertEqual((status, out), (0, "1\n"), err)
        for name in PRINTERS:
            with self.subTest(name):
                status, _, err = self.call(tool(*name.split()), env=environment, cwd=ROOT)
                self.assertEqual((status, err), (0, ""))

    def test_the_whole_repository_in_an_odd_place(self) -> None:
        """With a locale that has no letters beyond ASCII, and Python told not to help itself."""
        copy = self.directory / "a folder \u00e9\u4e2d"
        plant_faults.copy_repository(copy)
        environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
        commands = (*PRINTERS, "sync_docs.py --check LICENSE", "lessons.py run 40",
                    f"cuda_on_cpu.py --rewrite {copy}/day29/histogram.cu {copy}/x.cpp")
        for command in commands:
            name, *arguments = command.replace(str(copy), "@").split()
            with self.subTest(name):
                status, out, err = self.call(
                    [sys.executable, "-B", str(copy / "tools" / name),
                     *(word.replace("@", str(copy)) for word in arguments)],
                    env=environment, cwd=copy)
                self.assertEqual(status, 0, out + err)

    def test_a_course_without_home_in_an_odd_place(self) -> None:
        small = SmallCourse("another course \u00df")
        self.addCleanup(small.close)
        status, out, err = small.call("run", HOME="/nonexistent")
        self.assertEqual(status, 0, out + err)
        self.assertIn("2 of 2 lessons ran", out)


if __name__ == "__main__":
    unittest.main()
