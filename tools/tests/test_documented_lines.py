"""Each lesson's Build and Run lines, word for word, in an empty directory with that file alone.

A build must say nothing at all, with -Wall -Wextra too. C++ lessons are built with clang++ as
well. The builds with nvcc are the slow part, so each is made once: the line as documented, with
the warnings added through the environment.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools import check_transcript, course

BUILD_SECONDS = 300
RUN_SECONDS = 120
PACKAGES = {"g++": "g++", "clang++": "clang", "nvcc": "nvidia-cuda-toolkit"}


def shell(line: str, directory: Path) -> subprocess.CompletedProcess:
    return subprocess.run(["sh", "-c", line], cwd=directory, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=BUILD_SECONDS,
                          env={**os.environ, "NVCC_APPEND_FLAGS": "-Xcompiler=-Wall,-Wextra"})


class DocumentedLines(unittest.TestCase):
    def check(self, lesson: course.Lesson, compiler: str) -> None:
        if not shutil.which(compiler):
            self.skipTest(f"{compiler} was not found; install the Debian package "
                          f"{PACKAGES[compiler]}")
        line = re.sub(r"^g\+\+", compiler, lesson.build)
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            shutil.copy(lesson.file, directory)
            done = shell(line, directory)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), line)
            self.assertEqual(sorted(path.name for path in directory.iterdir()),
                             sorted([lesson.path.name, lesson.program]))
            outcome = check_transcript.run_program(shlex.split(lesson.run), RUN_SECONDS,
                                                   cwd=str(directory))
        cuda = lesson.language == "cuda"
        verdict = check_transcript.judge(
            outcome, course.read_text(lesson.root / lesson.transcript), lesson.stderr, cuda=cuda,
            require_gpu=cuda and os.environ.get("LESSONS_REQUIRE_GPU") == "1", cpu_runtime=False)
        if verdict.status == check_transcript.SKIPPED:
            self.skipTest(f"built without a warning, not run: {verdict.lines[0]}")
        self.assertEqual(verdict.status, check_transcript.PASSED, "\n".join(verdict.lines))


def add_test(lesson: course.Lesson, compiler: str) -> None:
    name = f"test_{compiler.replace('+', 'p')}_{lesson.stem}"
    setattr(DocumentedLines, name, lambda self: self.check(lesson, compiler))


for each in course.lessons():
    for each_compiler in ("nvcc",) if each.language == "cuda" else ("g++", "clang++"):
        add_test(each, each_compiler)


if __name__ == "__main__":
    unittest.main()
