"""Every copy of a block in common/ is identical to its home, and the homes compile alone."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools import course

HOMES = sorted((course.ROOT / "common").glob("*.h"))


def problems(path: Path, homes: dict[str, Path]) -> list[str]:
    """What is wrong with the blocks of one lesson."""
    found = []
    for name in course.block_names(path):
        if name not in homes:
            found.append(f"{path.name}: no file in common/ is the home of the block '{name}'")
            continue
        try:
            copy = course.common_block(path, name)
        except course.CourseError as error:
            found.append(str(error))
            continue
        if copy != course.common_block(homes[name], name):
            found.append(f"{path.name}: the block '{name}' differs from {homes[name].name}")
    return found


def homes_by_name() -> dict[str, Path]:
    return {name: path for path in HOMES for name in course.block_names(path)}


class CommonBlocks(unittest.TestCase):
    def test_every_copy_is_identical_to_its_home(self):
        for lesson in course.lessons():
            with self.subTest(lesson.id):
                self.assertEqual(problems(lesson.file, homes_by_name()), [])

    def test_every_home_is_used_and_named_like_its_file(self):
        used = {name for lesson in course.lessons() for name in course.block_names(lesson.file)}
        for path in HOMES:
            with self.subTest(path.name):
                self.assertEqual(course.block_names(path), [path.stem])
                self.assertIn(path.stem, used)

    def test_no_lesson_has_a_function_of_a_home_outside_a_block(self):
        for lesson in course.lessons():
            text = course.read_text(lesson.file)
            for name, mark in {"cuda_check": "#define CUDA_CHECK", "find_device": "bool findDevice",
                               "time_kernel": "float timeKernel("}.items():
                if mark in text:
                    with self.subTest(lesson.id, block=name):
                        self.assertIn(mark, course.common_block(lesson.file, name))

    def test_homes_compile_alone(self):
        nvcc = shutil.which("nvcc")
        if not nvcc:
            self.skipTest("nvcc was not found; install the Debian package nvidia-cuda-toolkit")
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory) / "homes.cu"
            source.write_text("".join(f'#include "{path.name}"\n' * 2 for path in HOMES)
                              + "int main() {}\n")
            done = subprocess.run(
                [nvcc, "-Xcompiler=-Wall,-Wextra", "-I", course.ROOT / "common", "-c", source,
                 "-o", Path(directory) / "homes.o"], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))


class MustFail(unittest.TestCase):
    def test_a_changed_an_unknown_and_an_open_block(self):
        home = course.common_block(course.ROOT / "common" / "cuda_check.h", "cuda_check")
        begin, end = "// common: cuda_check\n", "// end common: cuda_check\n"
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "x.cu"
            for text, count in {
                begin + home + end: 0,
                begin + home.replace("exit(1)", "exit(2)") + end: 1,
                begin + home.replace("  do {", " do {") + end: 1,
                begin + home: 1,
                begin.replace("check", "chuck") + home + end.replace("check", "chuck"): 1,
            }.items():
                path.write_text(text)
                with self.subTest(text[:300]):
                    self.assertEqual(len(problems(path, homes_by_name())), count)


if __name__ == "__main__":
    unittest.main()
