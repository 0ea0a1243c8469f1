#!/usr/bin/env python3
"""Run a program and compare what it does with its transcript.

    python3 tools/check_transcript.py [options] EXPECTED -- COMMAND [ARGUMENT...]

Exit status, stdout, stderr and time decide together. stdout must be EXPECTED byte for byte, but
for named masks, each of which has a type, a range and a reason (--masks lists them):

    {{time_ms}}             a value of that kind
    {{time_ms:10}}          the same, right-aligned in 10 columns; a wider value pushes
    {{racy_total 1..2048}}  with its own range, both ends included

stderr must be empty, but for lines that are announced by --stderr PATTERN or in the header of the
--lesson; in a pattern {text} stands for any text that is not empty. Each announced line must
appear at least once.

Nothing is ever written, unless --accept is given: it replaces EXPECTED by what the program
printed, keeping the masks. It refuses when the program failed or was skipped, printed nothing,
or when a mask would be lost.

Exit status: 0 passed, 1 differs, 2 wrong use, 77 skipped (the program ended with 77 because it
needs a device and there is none). --require-gpu, or LESSONS_REQUIRE_GPU=1 for a .cu --lesson,
turns a skip and a run without a GPU into a failure.
"""

from __future__ import annotations

import argparse
import ctypes
import difflib
import json
import math
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools import course  # noqa: E402

PASSED, DIFFERS, WRONG_USE, SKIPPED = 0, 1, 2, 77
OUTPUT_LIMIT = 1024 * 1024  # bytes of one stream; the longest transcript has some 10 KB
DRAIN_SECONDS = 0.5  # how long a pipe may stay open after the program itself has ended
SHOWN_LINES = 60  # of a diff, and of stderr


# ---- masks -------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Mask:
    kind: str  # "real", "int", "text" or "version"
    low: float  # the default range; a real must be greater than low, an int at least low
    high: float
    reason: str
    range_required: bool = False
    # A run on the CPU may be so slow that a rate is printed as 0.0, or a share of it is huge.
    loose_on_cpu: bool = False


MASKS = {
    "time_ms": Mask("real", 0, 1e7, "a measured time is positive and finite"),
    "time_us": Mask("real", 0, 1e10, "a measured time is positive and finite"),
    "rate_gbs": Mask("real", 0, 1e5, "bytes divided by a measured time", loose_on_cpu=True),
    "rate_gkeys": Mask("real", 0, 1e5, "keys divided by a measured time", loose_on_cpu=True),
    "ratio": Mask("real", 0, 1e6, "one measured time divided by another", loose_on_cpu=True),
    "share": Mask("real", 0, 1000, "a percentage of a measured figure", loose_on_cpu=True),
    "gpu_name": Mask("text", 0, 0, "the card's name"),
    "capability": Mask("version", 0, 0, "the card's compute capability, major.minor"),
    "sm_count": Mask("int", 1, 4096, "the card's number of multiprocessors"),
    "blocks": Mask("int", 1, 2**31 - 1, "a grid sized by the card's multiprocessors"),
    "count": Mask("int", 0, 2**63, "a count that follows from the card"),
    "kib": Mask("int", 0, 2**32, "a memory size of the card in KiB"),
    "mib": Mask("int", 0, 2**32, "a memory size of the card in MiB"),
    "racy_total": Mask("int", 1, 2**32 - 1, "what survives a data race: from 1 to its bound",
                       range_required=True),
}

MASK = re.compile(r"\{\{([^{}]*)\}\}")
MASK_BODY = re.compile(r"([a-z_]+)(?::([0-9]+))?(?: ([-0-9.eE]*?)\.\.([-0-9.eE]*))?")
NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


class TranscriptError(Exception):
    """The transcript itself is wrong; the message is one line."""


@dataclass(frozen=True)
class Placed:
    """A mask at its place in a line."""
    text: str
    name: str
    width: int
    low: float | None
    high: float | None

    @property
    def mask(self) -> Mask:
        return MASKS[self.name]

    def pattern(self) -> str:
        """A regular expression for whatever may be printed here; problem() judges it."""
        text = self.mask.kind == "text"
        if not self.width:
            return r"\S.*?\S|\S" if text else r"\S+?"
        padded = [rf" {{{blanks}}}" + (rf"(?! ).{{{self.width - blanks}}}(?<! )" if text else
                                       rf"\S{{{self.width - blanks}}}")
                  for blanks in range(self.width)]
        longer = rf"\S.{{{max(self.width - 1, 0)},}}?\S" if text else rf"\S{{{self.width + 1},}}?"
        return "|".join([*padded, longer])

    def problem(self, printed: str, cpu_runtime: bool) -> str | None:
        """Why the printed text, padding included, is not a value of this mask; None if it is."""
        value = printed.lstrip(" ")
        if self.width and len(printed) != max(self.width, len(value)):
            return f"takes {len(printed)} columns, not {max(self.width, len(value))}"
        if not self.width and printed != value:
            return "has blanks before it"
        kind = self.mask.kind
        if kind == "text":
            return None if value.isprintable() else "has characters that cannot be printed"
        if kind == "version":
            return None if re.fullmatch(r"[0-9]{1,2}\.[0-9]", value) else "is not major.minor"
        if kind == "int" and not re.fullmatch(r"-?[0-9]+", value):
            return "is not a whole number"
        if kind == "real" and not NUMBER.fullmatch(value):
            return "is not a finite decimal number"
        number = int(value) if kind == "int" else float(value)
        if not math.isfinite(number):
            return "is not finite"
        if self.low is not None or self.high is not None:
            low = self.mask.low if self.low is None else self.low
            high = self.mask.high if self.high is None else self.high
            return None if low <= number <= high else f"is not in {low:g}..{high:g}"
        if cpu_runtime and self.mask.loose_on_cpu:
            return None if number >= 0 else "is negative"
        if kind == "real" and number <= self.mask.low:
            return f"is not greater than {self.mask.low:g}"
        if not self.mask.low <= number <= self.mask.high:
            return f"is not in {self.mask.low:g}..{self.mask.high:g}"
        return None


def parse_mask(body: str) -> Placed:
    parts = MASK_BODY.fullmatch(body)
    text = "{{" + body + "}}"
    if not parts:
        raise TranscriptError(f"{text} is not a mask; write {{{{name}}}}, {{{{name:WIDTH}}}} or "
                              "{{name MIN..MAX}}")
    name, width, low, high = parts.groups()
    if name not in MASKS:
        raise TranscriptError(f"{text}: there is no mask '{name}'; there are: {' '.join(MASKS)}")
    try:
        bounds = [float(bound) if bound else None for bound in (low, high)]
    except ValueError:
        raise TranscriptError(f"{text}: MIN and MAX must be numbers") from None
    ranged = any(bound is not None for bound in bounds)
    if MASKS[name].kind in ("text", "version") and ranged:
        raise TranscriptError(f"{text}: {name} is a text and has no range")
    if MASKS[name].range_required and None in bounds:
        raise TranscriptError(f"{text}: {name} needs its own range MIN..MAX")
    if None not in bounds and bounds[0] > bounds[1]:
        raise TranscriptError(f"{text}: MIN is greater than MAX")
    return Placed(text, name, int(width or 0), *bounds)


class Line:
    """One line of a transcript."""

    def __init__(self, text: str):
        self.text = text
        self.masks: list[Placed] = []
        pattern = ""
        end = 0
        for found in MASK.finditer(text):
            placed = parse_mask(found[1])
            self.masks.append(placed)
            pattern += re.escape(text[end:found.start()])
            pattern += f"({placed.pattern()})"
            end = found.end()
        if "{{" in MASK.sub("", text):
            raise TranscriptError(f"a mask is opened and not closed: {text.strip()}")
        self.pattern = re.compile(pattern + re.escape(text[end:]), re.DOTALL)

    def match(self, actual: str, cpu_runtime: bool = False) -> tuple[list[str], list] | None:
        """None if the fixed text differs, else (problems, values)."""
        if not self.masks:
            return ([], []) if self.text == actual else None
        found = self.pattern.fullmatch(actual)
        if not found:
            return None
        problems, values = [], []
        for placed, printed in zip(self.masks, found.groups()):
            why = placed.problem(printed, cpu_runtime)
            if why:
                problems.append(f"{placed.text}: '{visible(printed)}' {why} "
                                f"({placed.mask.reason})")
            values.append((placed.name, printed.strip(" ")))
        return problems, values


# ---- comparing ---------------------------------------------------------------------------------

def visible(line: str) -> str:
    """The line in ASCII, with everything that the eye would miss written out."""
    body = line.rstrip(" ")
    blanks = len(line) - len(body)
    shown = "".join(
        "[CR]" if c == "\r" else "[TAB]" if c == "\t" else
        c if " " <= c <= "~" else c.encode("unicode_escape").decode() for c in body)
    return shown + (f"[{blanks} blank{'s' if blanks > 1 else ''}]" if blanks else "")


def _as_expected(expected: list[Line], actual: list[str], cpu_runtime: bool) -> list[str]:
    """The actual lines, each one that fits a line with masks replaced by that line."""
    masked = [i for i, line in enumerate(expected) if line.masks]
    replaced = []
    for at, text in enumerate(actual):
        fits = [i for i in masked if expected[i].match(text, cpu_runtime) not in (None,)
                and not expected[i].match(text, cpu_runtime)[0]]
        nearest = min(fits, key=lambda i: abs(i - at), default=None)
        replaced.append(text if nearest is None else expected[nearest].text)
    return replaced


def parse_transcript(text: str) -> list[Line]:
    lines = []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            lines.append(Line(line))
        except TranscriptError as error:
            raise TranscriptError(f"line {number}: {error}") from None
    return lines


def match(expected_text: str, actual_text: str,
          cpu_runtime: bool = False) -> tuple[list[str], dict[str, list[str]]]:
    """Compare. Returns (differences, values): no differences means that the texts agree.

    differences are lines to show a reader: a unified diff, then what is wrong with masked values.
    values maps the name of a mask to the list of its values as printed, in order of appearance.
    """
    expected, actual = parse_transcript(expected_text), actual_text.split("\n")
    values: dict[str, list[str]] = {}
    problems = []
    same = len(expected) == len(actual)
    for number, (line, text) in enumerate(zip(expected, actual), start=1):
        result = line.match(text, cpu_runtime)
        if result is None:
            same = False
            continue
        problems += [f"line {number}: {problem}" for problem in result[0]]
        for name, value in result[1]:
            values.setdefault(name, []).append(value)
    if same and not problems:
        return [], values
    shown = _as_expected(expected, actual, cpu_runtime)
    before = [line.text for line in expected]
    marks = []
    for lines in (before, shown):  # A text that ends in LF has an empty last piece.
        if lines[-1] == "":
            lines.pop()
            marks.append(False)
        else:
            marks.append(True)
    back = {}
    for text, real in zip(shown, actual):
        back.setdefault(text, real)
    diff = list(difflib.unified_diff(before, shown, "expected", "actual", lineterm="", n=2))
    out = [line if line.startswith(("---", "+++", "@@")) and at < 2 or line.startswith("@@")
           else line[:1] + visible(back.get(line[1:], line[1:]) if line[:1] == "+" else line[1:])
           for at, line in enumerate(diff)]
    if marks[0] != marks[1]:
        out.append("\\ the " + ("transcript" if marks[0] else "program's output")
                   + " has no newline at its end, the other has one")
    return out + problems or ["the texts differ"], values


def stderr_problems(text: str, patterns: list[str], cpu_runtime: bool) -> list[str]:
    """What is wrong with stderr: lines nobody announced, announced lines that are missing."""
    problems = []
    compiled = [(pattern, re.compile("(.+)".join(re.escape(piece)
                                                 for piece in pattern.split("{text}"))))
                for pattern in patterns]
    missing = dict(compiled)
    runtime_lines = 0
    for line in text.split("\n")[:-1] if text.endswith("\n") else text.split("\n"):
        if line == "" and text == "":
            continue
        if cpu_runtime and line.startswith("cuda_on_cpu: ") and not runtime_lines:
            runtime_lines = 1
            continue
        fits = [pattern for pattern, regex in compiled if regex.fullmatch(line)]
        for pattern in fits:
            missing.pop(pattern, None)
        if not fits:
            problems.append(f"stderr has a line that was not announced: {visible(line)}")
    if text and not text.endswith("\n"):
        problems.append("stderr does not end with a newline")
    problems += [f"stderr lacks the announced line: {pattern}" for pattern in missing]
    return problems


def where_kernels_ran(stderr: str, values: dict[str, list[str]], cpu_runtime: bool) -> str:
    """'GPU (<name>)', 'CPU (<n> workers)' or 'not run (<why>)'."""
    if cpu_runtime:
        line = re.search(r"^cuda_on_cpu: (.*)$", stderr, re.MULTILINE)
        if not line:
            return "not run (the CPU runtime reports no kernel)"
        count = re.search(r"\d+", line[1])
        return f"CPU ({count[0] if count else '?'} workers)"
    none = re.search(r"^device: none found(?: \((.*?)\))?:", stderr, re.MULTILINE)
    if none:
        return f"not run ({none[1] or 'no device'})"
    device = re.search(r"^device: (.+?), compute capability", stderr, re.MULTILINE)
    name = device[1] if device else (values.get("gpu_name") or [None])[0]
    return f"GPU ({name})" if name else "not run (the program names no device)"


# ---- running -----------------------------------------------------------------------------------

@dataclass
class Outcome:
    status: int | None = None  # exit status, negative for a signal, None if it was stopped
    stdout: bytes = b""
    stderr: bytes = b""
    stopped: str = ""  # why it was stopped, or what was wrong with the way it ended
    seconds: float = 0.0


def _die_with_parent() -> None:
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, Linux only
    except (OSError, AttributeError):
        pass


def kill_group(process: subprocess.Popen) -> None:
    """End a process that was started in its own session, and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def run_program(command: list[str], timeout: float, cwd: str | None = None,
                limit: int = OUTPUT_LIMIT, env: dict | None = None) -> Outcome:
    """Run a program without input in a session of its own; nothing of it outlives this call."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, cwd=cwd, env=env, start_new_session=True,
                               preexec_fn=_die_with_parent)
    streams = {"stdout": bytearray(), "stderr": bytearray()}
    outcome = Outcome()
    ended_at = None
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, "stdout")
            selector.register(process.stderr, selectors.EVENT_READ, "stderr")
            while selector.get_map() or process.poll() is None:
                now = time.monotonic()
                if process.poll() is not None:
                    ended_at = ended_at or now
                    if now - ended_at > DRAIN_SECONDS:
                        outcome.stopped = "left a process behind that keeps its output open"
                        break
                if now - start > timeout:
                    outcome.stopped = f"did not end within {timeout:g} s and was stopped"
                    break
                if not selector.get_map():
                    time.sleep(0.01)
                for key, _ in selector.select(0.05):
                    ended_at = None  # The time counts from when the pipes are quiet.
                    data = os.read(key.fd, 65536)
                    if not data:
                        selector.unregister(key.fileobj)
                    streams[key.data] += data
                    if len(streams[key.data]) > limit:
                        outcome.stopped = (f"printed more than {limit} bytes on {key.data} "
                                           "and was stopped")
                if outcome.stopped:
                    break
        outcome.status = process.poll()
    finally:
        kill_group(process)
        process.stdout.close()
        process.stderr.close()
    outcome.stdout, outcome.stderr = bytes(streams["stdout"]), bytes(streams["stderr"])
    outcome.seconds = time.monotonic() - start
    return outcome


# ---- the verdict -------------------------------------------------------------------------------

@dataclass
class Verdict:
    status: int
    lines: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)
    kernels: str = ""


def judge(outcome: Outcome, expected: str | None, patterns: list[str], cuda: bool,
          require_gpu: bool, cpu_runtime: bool) -> Verdict:
    """Decide. expected None means that there is no transcript yet (only for --accept)."""
    problems = []
    texts = {}
    for name in ("stdout", "stderr"):
        data = getattr(outcome, name)
        try:
            texts[name] = data.decode("utf-8")
        except UnicodeDecodeError as error:
            problems.append(f"{name} is not valid UTF-8: byte 0x{data[error.start]:02x} "
                            f"at offset {error.start}")
            texts[name] = data.decode("utf-8", "backslashreplace")
    if outcome.stopped:
        problems.append(f"the program {outcome.stopped}")
        if "bytes on" in outcome.stopped:
            return Verdict(DIFFERS, problems)  # A diff of a flood helps nobody.
    elif outcome.status == SKIPPED:
        reason = texts["stderr"].strip()
        if not texts["stdout"] and reason and "\n" not in reason and not problems:
            if require_gpu:
                return Verdict(DIFFERS, [f"a GPU is required, and the program skipped: {reason}"])
            return Verdict(SKIPPED, [f"skipped: {visible(reason)}"])
        problems.append("exit status 77 (skipped) needs an empty stdout and one line on stderr")
    elif outcome.status < 0:
        number = -outcome.status
        known = number in [int(entry) for entry in signal.Signals]
        name = signal.Signals(number).name if known else f"signal {number}"
        problems.append(f"the program was ended by {name}")
    elif outcome.status != 0:
        problems.append(f"the program ended with exit status {outcome.status}, not 0")

    problems += stderr_problems(texts["stderr"], patterns, cpu_runtime)
    values: dict[str, list[str]] = {}
    differences = []
    if expected is not None:
        differences, values = match(expected, texts["stdout"], cpu_runtime)
    if not texts["stdout"]:
        problems.append("the program printed nothing on stdout")
        differences = []
    kernels = where_kernels_ran(texts["stderr"], values, cpu_runtime) if cuda else ""
    if require_gpu and not problems and not differences and not kernels.startswith("GPU"):
        problems.append(f"a GPU is required, and kernels were {kernels or 'not run'}")
    if problems or differences:
        shown = differences[:SHOWN_LINES]
        if len(differences) > SHOWN_LINES:
            shown.append(f"... {len(differences) - SHOWN_LINES} more lines")
        return Verdict(DIFFERS, shown + problems[:SHOWN_LINES], values, kernels)
    return Verdict(PASSED, [], values, kernels)


def accepted_text(expected: str | None, actual: str, cpu_runtime: bool) -> str:
    """The new transcript: what was printed, with the masks kept. Raises TranscriptError."""
    if "\r" in actual:
        raise TranscriptError("the program printed a carriage return")
    if expected is None:
        return actual
    lines = parse_transcript(expected)
    replaced = _as_expected(lines, actual.split("\n"), cpu_runtime)
    remaining = list(replaced)
    for number, line in enumerate(lines, start=1):
        if line.masks:
            if line.text not in remaining:
                raise TranscriptError(f"the mask {line.masks[0].text} of line {number} "
                                      "would be lost")
            remaining.remove(line.text)
    return "\n".join(replaced)


def print_masks() -> None:
    for name, mask in MASKS.items():
        needs = "own range" if mask.range_required else ""
        bounds = {"text": "", "version": ""}.get(mask.kind, f"{mask.low:g}..{mask.high:g}")
        print(f"{name:<12} {mask.kind:<8} {needs or bounds:<16} {mask.reason}")


def parse_arguments(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = course.Parser(__doc__,
                           usage="%(prog)s [options] EXPECTED -- COMMAND [ARGUMENT...]")
    parser.add_argument("expected", metavar="EXPECTED", nargs="?", type=Path)
    parser.add_argument("--accept", action="store_true", help="make the output the transcript")
    parser.add_argument("--require-gpu", action="store_true", help="a run without a GPU fails")
    parser.add_argument("--cpu-runtime", action="store_true",
                        help="the program was built for the CPU: allow the runtime's own line")
    parser.add_argument("--timeout", metavar="S", type=float, default=60.0,
                        help="seconds the program may take (default 60)")
    parser.add_argument("--stderr", metavar="PATTERN", action="append", default=[],
                        help="a line that stderr must have; {text} stands for any text")
    parser.add_argument("--lesson", metavar="FILE", type=Path,
                        help="take the announced stderr lines from this lesson's header")
    parser.add_argument("--values", metavar="JSON", type=Path,
                        help="on a pass, write the masked values and where kernels ran")
    parser.add_argument("--masks", action="store_true", help="list the masks and end")
    command: list[str] = []
    if "--" in argv:
        at = argv.index("--")
        argv, command = argv[:at], argv[at + 1:]
    options = parser.parse_args(argv)
    if not options.masks:
        if options.expected is None or not command:
            parser.error("give EXPECTED, then --, then the command to run")
        if not options.timeout > 0 or not math.isfinite(options.timeout):
            parser.error("--timeout must be a positive number of seconds")
        if options.require_gpu and options.cpu_runtime:
            parser.error("--require-gpu and --cpu-runtime exclude each other")
    return options, command


def check(options: argparse.Namespace, command: list[str]) -> Verdict:
    patterns = list(options.stderr)
    cuda = bool(options.require_gpu or options.cpu_runtime or patterns)
    require_gpu = options.require_gpu
    if options.lesson:
        patterns += course.parse_header(options.lesson)["stderr"]
        cuda = options.lesson.suffix == ".cu"
        if os.environ.get("LESSONS_REQUIRE_GPU") == "1" and not options.cpu_runtime:
            require_gpu = require_gpu or cuda
    expected = None
    if options.expected.exists() or not options.accept:
        if not options.expected.exists():
            raise course.CourseError(f"{options.expected}: there is no such transcript; "
                                     "--accept makes it")
        expected = course.read_text(options.expected)
        if expected == "":
            raise course.CourseError(f"{options.expected}: the transcript is empty")
        parse_transcript(expected)
    try:
        outcome = run_program(command, options.timeout)
    except OSError as error:
        raise course.CourseError(f"{command[0]}: cannot be started: {error.strerror}") from None
    verdict = judge(outcome, expected, patterns, cuda, require_gpu, options.cpu_runtime)
    if not options.accept:
        if verdict.status == DIFFERS and expected is not None and "\r" in expected:
            verdict.lines.append(f"{options.expected} has CR line ends; check it out with LF")
        return verdict
    alone = judge(outcome, None, patterns, cuda, False, options.cpu_runtime)
    if alone.status != PASSED:
        return Verdict(DIFFERS, ["not accepted:", *alone.lines])
    try:
        text = accepted_text(expected, outcome.stdout.decode("utf-8"), options.cpu_runtime)
    except TranscriptError as error:
        return Verdict(DIFFERS, [f"not accepted: {error}"])
    if text == expected:
        verdict.lines = ["nothing to accept: the transcript is as printed"]
        return verdict
    course.write_atomically(options.expected, text)
    return Verdict(PASSED, [f"accepted: {options.expected}; look at the change before you keep it"],
                   kernels=alone.kernels)


def main(argv: list[str] | None = None) -> int:
    options, command = parse_arguments(sys.argv[1:] if argv is None else argv)
    if options.masks:
        print_masks()
        return PASSED
    try:
        verdict = check(options, command)
        if verdict.status == PASSED and options.values:
            course.write_atomically(options.values, json.dumps(
                {"values": verdict.values, "kernels": verdict.kernels}, indent=2) + "\n")
    except (course.CourseError, TranscriptError) as error:
        where = f"{options.expected}: " if isinstance(error, TranscriptError) else ""
        print(f"check_transcript.py: {where}{error}", file=sys.stderr)
        return WRONG_USE
    except OSError as error:
        print(f"check_transcript.py: {course.reason(error)}", file=sys.stderr)
        return WRONG_USE
    for line in verdict.lines:
        print(line)
    if verdict.status == DIFFERS:
        print(f"failed: {options.expected}")
    if verdict.status == PASSED:
        print(f"passed: {options.expected}")
        if verdict.kernels:
            print(f"kernels: {verdict.kernels}")
    return verdict.status


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
