"""A course of two tiny lessons in a temporary directory, for the tests of the tools."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.course import ROOT

LESSON = """// SPDX-License-Identifier: MIT
//
// {section}  {title}
//
// One line of summary.
// Another line of summary.
// A third line of summary.
//
// Build: {build}
// Run:   ./{program}
{stderr}{body}"""

HELLO = '#include <cstdio>\n\nint main() { std::puts("hello"); }\n'
KERNEL = "__global__ void nothing() {}\n\nint main() { nothing<<<1, 1>>>(); }\n"
PASSING_MODULE = ("import unittest\n\n\nclass Small(unittest.TestCase):\n"
                  "    def test_it(self):\n        self.assertTrue(True)\n")


def default_interrupt() -> None:
    """For a child: heed SIGINT, which a shell lets all that it starts in the background ignore."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def lesson_text(name: str, body: str, section: str = "7.1", title: str = "A lesson",
                program: str | None = None, stderr: str = "", build: str | None = None) -> str:
    program = program or Path(name).stem.split("_", 1)[1]
    compiler = "nvcc -arch=sm_80" if name.endswith(".cu") else "g++ -std=c++17 -Wall -Wextra -O2"
    line = build or f"{compiler} {name} -o {program}"
    announced = f"// Stderr: {stderr}\n" if stderr else ""
    return LESSON.format(section=section, title=title, build=line, program=program,
                         stderr=announced, body=body)


class SmallCourse:
    """chapter07/10_hello.cpp and chapter07/11_again.cpp, each printing `hello`."""

    def __init__(self, name: str = "a course with a blank and an \u00e9"):
        self.temporary = tempfile.TemporaryDirectory(prefix="small-course-")
        self.root = Path(self.temporary.name) / name
        for directory in ("chapter07", "expected/chapter07", "tools/tests", "common"):
            (self.root / directory).mkdir(parents=True)
        for tool in ("__init__.py", "course.py", "check_transcript.py", "lessons.py",
                     "run_test_module.py"):
            shutil.copy(ROOT / "tools" / tool, self.root / "tools")
        shutil.copy(ROOT / "common" / "add_lesson.cmake", self.root / "common")
        self.write("tools/tests/__init__.py", "")
        self.write("tools/tests/test_small.py", PASSING_MODULE)
        self.lines: list[str] = []
        self.add("chapter07/10_hello.cpp", HELLO)
        self.add("chapter07/11_again.cpp", HELLO)

    def close(self) -> None:
        self.temporary.cleanup()

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")

    def add(self, name: str, body: str, labels: str = "cpu", expected: str | None = "hello\n",
            **header) -> None:
        """Add a lesson, or write one anew."""
        self.write(name, lesson_text(Path(name).name, body, **header))
        if expected is not None:
            chapter, stem = Path(name).parent.name, Path(name).stem
            self.write(f"expected/{chapter}/{stem}.txt", expected)
        line = f"add_lesson({name} LABELS {labels})"
        self.lines = [old for old in self.lines if name not in old] + [line]
        self.write_list()

    def write_list(self) -> None:
        self.write("CMakeLists.txt", "cmake_minimum_required(VERSION 3.22)\n"
                   "project(small LANGUAGES CXX)\nenable_testing()\n"
                   "include(common/add_lesson.cmake)\n" + "\n".join(self.lines)
                   + "\nreport_cuda_lessons()\n")

    def environment(self, **changes: str) -> dict:
        """No nvcc, unless a test brings one: CMake would look for it beyond PATH too."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LESSONS_")}
        return {**kept, "CUDACXX": "/nonexistent/nvcc", **changes}

    def start(self, *arguments: str, **changes: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, "tools/lessons.py", *arguments], cwd=self.root,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, encoding="utf-8",
                                errors="backslashreplace", env=self.environment(**changes),
                                preexec_fn=default_interrupt)

    def call(self, *arguments: str, **changes: str) -> tuple[int, str, str]:
        process = self.start(*arguments, **changes)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err
