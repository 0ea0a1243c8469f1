"""Every kernel of the course, called with many sizes, shapes, alignments and values.

The tests themselves are tools/tests/kernels/*.cu; tools/kernel_tests.py builds and runs them. Here
they run on the CPU with a subset of cases that covers all pairs of choices, and on the GPU, where
there is one, with the subset too. The long form takes nine times as many cases, other orders of
the threads, and buffers without guard words whose every access is watched. The whole product is
for `kernel_tests.py --gpu --mode full`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import unittest
from pathlib import Path

from tools import course, kernel_tests
from tools.lessons import Machine

CUDA_LESSONS = [lesson for lesson in course.lessons() if lesson.language == "cuda"]
LONG = bool(os.environ.get("LESSONS_LONG"))


class Built(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory(prefix="kernel-tests-")
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)

    def expect_right(self, program: Path, mode: str, **environment: str) -> None:
        outcome = kernel_tests.run(program, mode, env={**os.environ, **environment})
        said = kernel_tests.said(outcome)
        self.assertTrue(outcome.status == 0 and not outcome.stopped, said)
        self.assertIn("all right", said)


class OnCpu(Built):
    def check(self, lesson: course.Lesson) -> None:
        program = kernel_tests.build_for_cpu(kernel_tests.harness(lesson), lesson.file,
                                             self.directory)
        self.expect_right(program, "pairs")
        if lesson.id == "92":  # Its atomics come out of order then, and it has to put that right.
            self.expect_right(program, "tiny", CUDA_ON_CPU_ORDER="descending")

    def test_host_functions(self) -> None:
        compiler = "g++" if shutil.which("g++") else "clang++"
        program = kernel_tests.build_host_functions(compiler, self.directory)
        self.expect_right(program, "pairs")


class OnGpu(Built):
    def check(self, lesson: course.Lesson) -> None:
        machine = Machine()
        if not machine.nvcc or not machine.gpu:
            self.skipTest(machine.why_no_gpu())
        program = kernel_tests.build_for_gpu(kernel_tests.harness(lesson), lesson.file,
                                             self.directory)
        self.expect_right(program, "triples" if LONG else "pairs")


class InFull(Built):
    """Only in the long form, on the CPU."""

    def check(self, lesson: course.Lesson) -> None:
        test = kernel_tests.harness(lesson)
        program = kernel_tests.build_for_cpu(test, lesson.file, self.directory)
        for order in ("descending", "random:1"):
            self.expect_right(program, "pairs", CUDA_ON_CPU_ORDER=order)
        self.expect_right(program, "triples")
        watched = kernel_tests.build_for_cpu(test, lesson.file, self.directory, ("--check",))
        outcome = kernel_tests.run(watched, "small", tight=True,
                                   env={**os.environ, "CUDA_ON_CPU_CHECK": "1"})
        self.assertEqual(outcome.status, 0, kernel_tests.said(outcome))


class Completeness(unittest.TestCase):
    def test_every_kernel_is_called(self) -> None:
        for lesson in CUDA_LESSONS:
            with self.subTest(lesson.id):
                test = kernel_tests.harness(lesson).read_text(encoding="utf-8")
                names = kernel_tests.kernels(lesson.file.read_text(encoding="utf-8"))
                self.assertTrue(names)
                self.assertEqual([name for name in names if name not in test], [])

    def test_every_test_belongs_to_a_lesson(self) -> None:
        stems = {lesson.stem for lesson in CUDA_LESSONS}
        self.assertEqual({path.stem for path in kernel_tests.HOME.glob("*.cu")} - stems, set())

    def test_every_host_function_lesson_is_there(self) -> None:
        ids = [lesson.id for lesson in course.lessons() if lesson.language == "c++"]
        self.assertEqual(sorted(ids), sorted(kernel_tests.HOST_LESSONS))


class MustFail(Built):
    """Kernels spoiled on purpose: the tests of the tests."""

    def spoil(self, name: str, old: str, new: str) -> Path:
        lesson = course.find(name)[0]
        text = lesson.file.read_text(encoding="utf-8")
        self.assertEqual(text.count(old), 1, old)
        copy = self.directory / lesson.path.name
        copy.write_text(text.replace(old, new), encoding="utf-8", newline="\n")
        return copy

    def expect_wrong(self, program: Path, *messages: str) -> None:
        outcome = kernel_tests.run(program, "small")
        said = kernel_tests.said(outcome)
        self.assertEqual(outcome.status, 1, said)
        for message in messages:
            self.assertIn(message, said)

    def test_a_kernel_that_writes_behind_its_histogram(self) -> None:
        copy = self.spoil("21", "  g_offsets[b] = s_sum[b] - own_count;\n",
                          "  g_offsets[b] = s_sum[b] - own_count;\n"
                          "  if (b == 0) g_offsets[NUM_BUCKETS] = 0;\n")
        program = kernel_tests.build_for_cpu(kernel_tests.harness(course.find("21")[0]), copy,
                                             self.directory)
        self.expect_wrong(program, "exclusive_scan_offsets", "a write behind the end of a buffer")

    def test_a_host_function_that_drops_the_tail(self) -> None:
        copy = self.spoil("19", "std::min(WARP_SIZE, bucket_of.size() - start)",
                          "bucket_of.size() - start < WARP_SIZE ? 0 : WARP_SIZE")
        compiler = "g++" if shutil.which("g++") else "clang++"
        program = kernel_tests.build_host_functions(compiler, self.directory,
                                                    lessons={"19": copy})
        self.expect_wrong(program, "WRONG: 19: naive")


def add(case: type, lesson: course.Lesson) -> None:
    setattr(case, f"test_{lesson.stem}", lambda self: self.check(lesson))


for each in CUDA_LESSONS:
    add(OnCpu, each)
    add(OnGpu, each)
    add(InFull, each)


def load_tests(loader: unittest.TestLoader, _tests: unittest.TestSuite,
               _pattern: str | None) -> unittest.TestSuite:
    cases = [OnCpu, OnGpu, Completeness, MustFail] + ([InFull] if LONG else [])
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)


if __name__ == "__main__":
    unittest.main()
