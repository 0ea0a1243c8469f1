#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Plants known faults in copies of lessons and tools, and shows which check notices each.

    python3 tools/plant_faults.py              every fault of tools/tests/faults/table.py
    python3 tools/plant_faults.py --fast       the few that each test run plants
    python3 tools/plant_faults.py --list       only their names, and what must notice them
    python3 tools/plant_faults.py 91 barrier   those whose names hold one of these words

Each check is first shown to accept the file as it is. The checks:

    transcript        built as documented (.cu: for the CPU), the output differs from expected/
    self              the program, with a small input, ends with a failure of its own
    order             the same, with the threads of a block in descending order
    kernels           tools/tests/kernels finds a wrong result, a crash or a hang
    kernels reversed  the same, with the threads of a block in descending order
    race, race KERNEL the race detector of the CPU runtime reports one (in that kernel's test)
    warnings          -Wall -Wextra says something
    build, build full the file does not compile (full: with its documented size)
    tests MODULE      a module of tools/tests, or a class in it, fails in a copy of the repository
    nothing           no check can notice it; the table says why

Exit status: 0 all are noticed, 1 one is not, or an edit no longer applies, 2 wrong use.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from tools import check_transcript, course, kernel_tests  # noqa: E402
from tools.course import ROOT  # noqa: E402
from tools.tests.faults.table import FAULTS, Fault  # noqa: E402

CPU_TOOL = ROOT / "tools" / "cuda_on_cpu.py"
SECONDS = 120  # for one program; a fault may make it hang
SMALL = {  # Sizes at which a program of its own is quick, also under the race detector.
    "90_race_on_hardware": ("RACE_LAUNCHES=1", "RACE_MAX_N=2048"),
    "91_stable_counting_sort": ("SORT_MAX_N=1000", "SORT_RUNS=1"),
    "histogram": ("HISTOGRAM_BYTES=300003",),
}
RACE_STATUS = 66


class Rejected(Exception):
    """The check has noticed something; the message is its first line."""


class EditError(Exception):
    """The edit no longer applies."""


def edited(fault: Fault, text: str) -> str:
    count = text.count(fault.old)
    if count != fault.times:
        raise EditError(f"'{fault.name}' no longer applies: {fault.file} has its text {count} "
                        f"times, not {fault.times}")
    if fault.old == fault.new:
        raise EditError(f"'{fault.name}' changes nothing")
    return text.replace(fault.old, fault.new)


def first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip(" =-")]
    return lines[0] if lines else "(no message)"


def telling(text: str, pattern: str) -> str:
    """The first line that the pattern is in, else the first line."""
    found = re.search(rf"^.*(?:{pattern}).*$", text, re.MULTILINE)
    return found[0].strip() if found else first_line(text)


def run(command: list, env: dict | None = None, cwd: Path | None = None,
        seconds: float = SECONDS) -> tuple[int, str]:
    """The exit status, or -1 for a program that did not end, and what it said."""
    outcome = check_transcript.run_program(
        [str(word) for word in command], seconds, cwd=str(cwd) if cwd else None,
        env={**os.environ, **(env or {})}, limit=16 * 1024 * 1024)
    text = (outcome.stderr + outcome.stdout).decode("utf-8", "backslashreplace")
    if outcome.stopped:
        return -1, f"the program {outcome.stopped}\n{text}"
    return outcome.status, text


# ---- the checks: each raises Rejected when it notices something ----------------------------------

def check_transcript_of(lesson: course.Lesson, file: Path, work: Path) -> None:
    cuda = lesson.language == "cuda"
    if cuda:
        program = build_for_cpu(file, lesson.cpu_defines, work)
    else:
        program = work / lesson.program
        status, text = run(["g++", *course.build_flags(lesson), file, "-o", program])
        if status != 0:
            raise Rejected(telling(text, "error"))
    outcome = check_transcript.run_program([str(program)], SECONDS)
    verdict = check_transcript.judge(outcome, course.read_text(lesson.root / lesson.transcript),
                                     lesson.stderr, cuda, False, cuda)
    if verdict.status != check_transcript.PASSED:
        shown = [line for line in verdict.lines if line.startswith("+") and line[:3] != "+++"]
        raise Rejected((shown or verdict.lines)[0])


def build_for_cpu(file: Path, defines: tuple[str, ...], work: Path, *options: str) -> Path:
    status, text = run([sys.executable, CPU_TOOL, file, "--build-only", work, *options,
                        *(f"--define={define}" for define in defines)])
    if status != 0:
        raise Rejected(telling(text, "error"))
    return work / file.stem


def check_self(lesson: course.Lesson, file: Path, work: Path, order: str = "ascending") -> None:
    program = build_for_cpu(file, SMALL.get(lesson.stem, lesson.cpu_defines), work)
    status, text = run([program], {"CUDA_ON_CPU_ORDER": order})
    if status != 0:
        raise Rejected(telling(text, "MISMATCH|cuda_on_cpu: .*|bucket|device:"))


def check_kernels(lesson: course.Lesson, file: Path, work: Path, order: str = "ascending") -> None:
    try:
        program = kernel_tests.build_for_cpu(kernel_tests.harness(lesson), file, work)
    except kernel_tests.BuildError as error:
        raise Rejected(telling(str(error), "error")) from None
    status, text = run([program, "small"], {"CUDA_ON_CPU_ORDER": order})
    if status != 0:
        raise Rejected(telling(text, "WRONG:|cuda_on_cpu: "))


def check_race(lesson: course.Lesson, file: Path, work: Path, kernel: str) -> None:
    """The program itself, or with a kernel's name its kernel test, with four cases."""
    sanitize = ("--sanitize", "thread")
    if kernel:
        try:
            program = kernel_tests.build_for_cpu(kernel_tests.harness(lesson), file, work, sanitize)
        except kernel_tests.BuildError as error:
            raise Rejected(telling(str(error), "error")) from None
        command = [program, "tiny", kernel]
    else:
        command = [build_for_cpu(file, SMALL.get(lesson.stem, ()), work, *sanitize)]
    # Older sanitizers cannot start where the kernel scatters addresses widely.
    plain = ["setarch", "-R"] if shutil.which("setarch") else []
    status, text = run([*plain, *command], {"CUDA_ON_CPU_WORKERS": "2"})
    if status == RACE_STATUS:
        line = re.search(rf"^.*{re.escape(file.name)}:\d+.*$", text, re.MULTILINE)
        where = re.search(rf"{re.escape(file.name)}:\d+", line[0]) if line else None
        raise Rejected(f"data race at {where[0] if where else first_line(text)}")
    if status != 0:
        raise Rejected(first_line(text))


def check_warnings(lesson: course.Lesson, file: Path, work: Path) -> None:
    if lesson.language == "cuda":
        rewritten = work / f"{file.stem}.cpp"
        status, text = run([sys.executable, CPU_TOOL, "--rewrite", file, rewritten])
        options = ["-I", ROOT / "common" / "cuda_on_cpu" / "include", "-Wno-unknown-pragmas"]
    else:
        rewritten, options, status, text = file, [], 0, ""
    if status == 0:
        status, text = run(["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-fsyntax-only",
                            *options, rewritten])
    if status != 0 or text:
        raise Rejected(telling(text, "warning|error"))


def check_build(lesson: course.Lesson, file: Path, work: Path, full: bool) -> None:
    build_for_cpu(file, () if full else SMALL.get(lesson.stem, lesson.cpu_defines), work)


def copy_repository(target: Path) -> None:
    shutil.copytree(ROOT, target, symlinks=True,
                    ignore=shutil.ignore_patterns(".git", "build", "build-*", "__pycache__"))


def check_tests(module: str, root: Path) -> None:
    status, text = run([sys.executable, "-B", "-m", "unittest", f"tools.tests.{module}"],
                       {"LESSONS_LONG": ""}, root, seconds=600)
    if status != 0:
        raise Rejected(telling(text, r"^(FAIL|ERROR): ").strip())


def check(fault: Fault, text: str) -> None:
    """Run the fault's check with this text in place of the file's."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        scratch = Path(name)
        kind, _, argument = fault.check.partition(" ")
        if kind == "tests":
            root = scratch / "repository"
            copy_repository(root)
            (root / fault.file).write_text(text, encoding="utf-8", newline="\n")
            check_tests(argument, root)
            return
        lesson = course.find(fault.file)[0]
        file = scratch / lesson.path.name
        file.write_text(text, encoding="utf-8", newline="\n")
        work = scratch / "work"
        work.mkdir()
        if kind == "transcript":
            check_transcript_of(lesson, file, work)
        elif kind in ("self", "order"):
            check_self(lesson, file, work, "descending" if kind == "order" else "ascending")
        elif kind == "kernels":
            check_kernels(lesson, file, work, "descending" if argument else "ascending")
        elif kind == "race":
            check_race(lesson, file, work, argument)
        elif kind == "warnings":
            check_warnings(lesson, file, work)
        elif kind == "build":
            check_build(lesson, file, work, argument == "full")
        else:
            raise EditError(f"'{fault.name}': there is no check '{fault.check}'")


class Campaign:
    """Plants faults; remembers which checks accept the files as they are."""

    def __init__(self) -> None:
        self.accepted: dict[tuple[str, str], str | None] = {}

    def refusal(self, fault: Fault, text: str) -> str | None:
        """Why the check refuses even the file without the fault; None if it does not."""
        key = (fault.file if not fault.check.startswith("tests") else "", fault.check)
        if key not in self.accepted:
            try:
                check(fault, text)
                self.accepted[key] = None
            except Rejected as error:
                self.accepted[key] = str(error)
        return self.accepted[key]

    def plant(self, fault: Fault) -> tuple[bool, str]:
        """(as it must be, one line that says what happened)."""
        text = course.read_text(ROOT / fault.file)
        try:
            changed = edited(fault, text)
        except EditError as error:
            return False, str(error)
        if fault.check == "nothing":
            return True, f"cannot be noticed: {fault.why}"
        refusal = self.refusal(fault, text)
        if refusal is not None:
            return False, f"'{fault.check}' refuses {fault.file} without any fault: {refusal}"
        try:
            check(fault, changed)
        except Rejected as error:
            return True, f"noticed by '{fault.check}': {error}"
        return False, f"NOT noticed by '{fault.check}' ({fault.why})"


def main(argv: list[str] | None = None) -> int:
    parser = course.Parser(__doc__)
    parser.add_argument("word", nargs="*", help="of a fault's name, its file or its check")
    parser.add_argument("--fast", action="store_true", help="those of each test run")
    parser.add_argument("--list", action="store_true", help="plant nothing")
    options = parser.parse_args(argv)
    chosen = [fault for fault in FAULTS if (fault.fast or not options.fast)
              and (not options.word or any(word in f"{fault.name} {fault.file} {fault.check}"
                                           for word in options.word))]
    if not chosen:
        print(f"plant_faults.py: no fault has a name with one of: {' '.join(options.word)}; "
              "--list shows all", file=sys.stderr)
        return 2
    if options.list:
        for fault in chosen:
            print(f"{fault.name}: {fault.check} ({fault.why})")
        return 0
    campaign, bad = Campaign(), 0
    for fault in chosen:
        start = time.monotonic()
        good, line = campaign.plant(fault)
        bad += not good
        print(f"{'ok  ' if good else 'BAD '} {fault.name}: {line} "
              f"[{time.monotonic() - start:.1f} s]", flush=True)
    unseen = sum(fault.check == "nothing" for fault in chosen)
    print(f"{len(chosen)} faults: {len(chosen) - bad - unseen} noticed, {unseen} cannot be, "
          f"{bad} not as they must be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
