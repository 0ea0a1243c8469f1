"""Every C++ and CUDA file is formatted as .clang-format says."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools.course import ROOT

SUFFIXES = (".h", ".cuh", ".cpp", ".cu", ".hpp")


def sources() -> list[Path]:
    return sorted(path for top in ("chapter07", "day29", "common", "tools")
                  for path in (ROOT / top).rglob("*") if path.suffix in SUFFIXES)


def unformatted(paths: list[Path]) -> str:
    done = subprocess.run(["clang-format", "--dry-run", "-Werror",
                           f"--style=file:{ROOT}/.clang-format", *paths],
                          capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr or "clang-format failed"


class Formatting(unittest.TestCase):
    def setUp(self):
        if not shutil.which("clang-format"):
            self.skipTest("clang-format was not found; install the Debian package clang-format")

    def test_every_file_is_formatted(self):
        self.assertGreater(len(sources()), 6)
        self.assertEqual(unformatted(sources())[:3000], "")

    def test_a_file_that_is_not_formatted_is_found(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "x.cu"
            path.write_text("int  main( ) { return 0 ; }\n")
            self.assertIn("x.cu", unformatted([path]))


if __name__ == "__main__":
    unittest.main()
