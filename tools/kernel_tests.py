#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Calls every kernel of the lessons with many sizes, shapes, alignments and values.

    python3 tools/kernel_tests.py               all .cu lessons, on the CPU
    python3 tools/kernel_tests.py 20 histogram  only these
    python3 tools/kernel_tests.py --gpu         on the GPU, built with nvcc
    python3 tools/kernel_tests.py --mode full   all combinations

tools/tests/kernels/<stem>.cu tests the lesson of that name. It includes the lesson's own file with
main renamed. `pairs`, the default on the CPU, is a subset in which any two choices (a size and a
block size, say) occur together at least once; `small` is that for sizes up to 4097, and `tiny` is
four cases. `triples`, the default on the GPU, has each size with each alignment and each block
size; `full` is the whole product of sizes, blocks, grids, alignments and values: 36,864 cases a
kernel.

Exit status: 0 all right, 1 wrong results or a crash, 2 wrong use, 77 no GPU.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from tools import check_transcript, course  # noqa: E402
from tools.course import ROOT, CourseError  # noqa: E402

HOME = ROOT / "tools" / "tests" / "kernels"
CPU_TOOL = ROOT / "tools" / "cuda_on_cpu.py"
MODES = ("tiny", "small", "pairs", "triples", "full")
DEFINES = {"91_stable_counting_sort": ("SORT_MAX_N=65537",)}  # Only the host side uses it.
HOST_LESSONS = ("40", "19", "41", "42")
SECONDS = {"tiny": 300, "small": 300, "pairs": 300, "triples": 1800, "full": 7200}


class BuildError(Exception):
    """The compiler's messages."""


def harness(lesson: course.Lesson) -> Path:
    return HOME / f"{lesson.stem}.cu"


def kernels(text: str) -> list[str]:
    """The names of the kernels that a text defines."""
    return re.findall(r"__global__\s+void\s+(?:__launch_bounds__\([^()]*\)\s*)?(\w+)\s*\(", text)


def must_build(command: list, what: str) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise BuildError(f"{what}: {done.stderr.strip() or done.stdout.strip()}")


def build_for_cpu(test: Path, lesson: Path, directory: Path, options: tuple = ()) -> Path:
    """The lesson is rewritten as C++ first, because an included file is compiled as it stands."""
    rewritten = directory / f"lesson_{lesson.stem}.cpp"
    must_build([sys.executable, CPU_TOOL, "--rewrite", lesson, rewritten], lesson.name)
    defines = (f'LESSON_FILE="{rewritten}"', *DEFINES.get(lesson.stem, ()))
    must_build([sys.executable, CPU_TOOL, test, "--build-only", directory, *options,
                *(f"--define={define}" for define in defines)], test.name)
    return directory / test.stem


def build_for_gpu(test: Path, lesson: Path, directory: Path) -> Path:
    program = directory / test.stem
    defines = (f'LESSON_FILE="{lesson}"', *DEFINES.get(lesson.stem, ()))
    # nvcc takes one level of quotes from a -D.
    must_build(["nvcc", "-std=c++17", "-O2", "-arch=native",
                *("-D" + define.replace('"', '\\"') for define in defines), test, "-o", program],
               test.name)
    return program


def build_host_functions(compiler: str, directory: Path, options: tuple = (),
                         lessons: dict[str, Path] | None = None) -> Path:
    program = directory / "host_functions"
    files = {name: course.find(name)[0].file for name in HOST_LESSONS} | (lessons or {})
    must_build([compiler, "-std=c++17", "-O2", *options,
                *(f'-DLESSON_{name}="{path}"' for name, path in files.items()),
                HOME / "host_functions.cpp", "-o", program], "host_functions.cpp")
    return program


def run(program: Path, mode: str, tight: bool = False,
        env: dict | None = None) -> check_transcript.Outcome:
    command = [str(program), mode, *(("tight",) if tight else ())]
    return check_transcript.run_program(command, SECONDS[mode], env=env)


def said(outcome: check_transcript.Outcome) -> str:
    text = (outcome.stdout + outcome.stderr).decode("utf-8", "backslashreplace").strip()
    how = outcome.stopped or f"exit status {outcome.status}"
    return f"{how}\n{text}"


def main(argv: list[str] | None = None) -> int:
    parser = course.Parser(__doc__)
    parser.add_argument("lesson", nargs="*", help="id, stem, path or chapter; default: all")
    parser.add_argument("--gpu", action="store_true", help="build with nvcc, run on the GPU")
    parser.add_argument("--mode", choices=MODES, help="which cases")
    options = parser.parse_args(argv)
    mode = options.mode or ("triples" if options.gpu else "pairs")
    try:
        chosen = [lesson for lesson in (course.lessons() if not options.lesson else [
            lesson for text in options.lesson for lesson in course.find(text)])
            if lesson.language == "cuda"]
        if not chosen:
            raise CourseError("no .cu lesson is selected")
    except CourseError as error:
        print(f"kernel_tests.py: {error}", file=sys.stderr)
        return 2
    if options.gpu:
        from tools.lessons import Machine
        machine = Machine()
        if not (machine.nvcc and machine.gpu and shutil.which("nvcc")):
            print(f"kernel_tests.py: skipped: {machine.why_no_gpu()}", file=sys.stderr)
            return check_transcript.SKIPPED
        print(f"on the GPU: {machine.gpu}", flush=True)
    failed = 0
    for lesson in chosen:
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kernel-tests-") as name:
            try:
                program = (build_for_gpu if options.gpu else build_for_cpu)(
                    harness(lesson), lesson.file, Path(name))
                built = time.monotonic() - start
                outcome = run(program, mode)
                right, text = outcome.status == 0 and not outcome.stopped, said(outcome)
            except BuildError as error:
                built, right, text = 0.0, False, str(error)
        failed += not right
        print(f"{'right' if right else 'WRONG'}: {lesson.path}: built in {built:.1f} s, "
              f"{time.monotonic() - start:.1f} s in all\n{text}\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
