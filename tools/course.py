#!/usr/bin/env python3
"""The one parser of what the course consists of. Every tool imports it.

The order of the lessons is the order of the add_lesson() lines in CMakeLists.txt. What a lesson
is called, how it is built and how it is run stands in the comment at the top of its file.

    python3 tools/course.py                 check everything, print one line a lesson
    python3 tools/course.py --json          the same facts for another program
    python3 tools/course.py --field build 20    one field of the selected lessons
    python3 tools/course.py --cmake FILE    what CMake needs of one header

Exit status: 0 all well, 2 something is wrong (one line on stderr says what).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shlex
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, NoReturn

ROOT = Path(__file__).resolve().parent.parent
SPDX = "SPDX-License-Identifier: MIT"
LABELS = ("cpu", "gpu", "bench")
SUMMARY_LINES = (3, 8)


class CourseError(Exception):
    """Something is wrong with the course; the message is one line that says what and where."""


@dataclass
class Lesson:
    path: Path  # relative to the root, e.g. chapter07/20_privatized_histogram.cu
    chapter: str  # "chapter07"
    stem: str  # "20_privatized_histogram"
    id: str  # "20"; a lesson without a number has its stem as id
    section: str  # "7.2"
    title: str
    summary: str  # the lines between title and Build, joined by newlines
    build: str  # the documented lines, verbatim
    run: str
    program: str  # the name after -o
    stderr: list[str]  # patterns of the lines that the lesson announces on stderr
    language: str  # "c++" or "cuda"
    labels: tuple[str, ...]
    transcript: Path  # relative to the root, expected/<chapter>/<stem>.txt
    cpu_defines: tuple[str, ...] = ()  # what a build for the CPU defines, e.g. HISTOGRAM_BYTES=4096
    root: Path = ROOT

    @property
    def file(self) -> Path:
        return self.root / self.path


def read_text(path: Path) -> str:
    """The file as text, line ends untouched. Anything unreadable is one clear CourseError."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise CourseError(f"{path}: not valid UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise CourseError(f"{path}: cannot be read: {error.strerror}") from None


def parse_header(path: Path) -> dict:
    """The fields of a lesson's first comment block.

    Returns section, title, summary, build, run, program, stderr, language. Raises CourseError.
    """
    path = Path(path)
    lines = read_text(path).splitlines()
    header = []
    for line in lines:
        if not line.startswith("//"):
            break
        header.append(line[2:][1:] if line[2:].startswith(" ") else line[2:])

    def fail(what: str) -> CourseError:
        return CourseError(f"{path}: header: {what}")

    if not header or header[0].strip() != SPDX:
        raise fail(f"the first line must be '// {SPDX}'")
    if len(header) < 3 or header[1] != "":
        raise fail("an empty comment line must follow the license line")
    heading = re.fullmatch(r"(\d+\.\d+)  (\S.*)", header[2])
    if not heading:
        raise fail("line 3 must be '// <section>  <title>', for example '// 7.2  Private copies'")

    named = {"Build": [], "Run": [], "Stderr": []}
    summary = []
    for line in header[3:]:
        field = re.fullmatch(r"(Build|Run|Stderr):\s+(\S.*)", line)
        if field:
            named[field[1]].append(field[2].rstrip())
        elif named["Build"] and line.strip():
            raise fail(f"unexpected text after the Build line: '{line.strip()}'")
        else:
            summary.append(line.rstrip())
    for name in ("Build", "Run"):
        if len(named[name]) != 1:
            raise fail(f"exactly one '{name}:' line is needed, found {len(named[name])}")
    text = "\n".join(summary).strip("\n")
    count = sum(1 for line in text.splitlines() if line)
    if not SUMMARY_LINES[0] <= count <= SUMMARY_LINES[1]:
        raise fail(f"the summary must have {SUMMARY_LINES[0]} to {SUMMARY_LINES[1]} lines, "
                   f"it has {count}")

    build, run = named["Build"][0], named["Run"][0]
    language = {".cpp": "c++", ".cu": "cuda"}.get(path.suffix)
    if language is None:
        raise fail("a lesson is a .cpp or a .cu file")
    try:
        words, run_words = shlex.split(build), shlex.split(run)
    except ValueError as error:
        raise fail(f"Build or Run line cannot be split into words: {error}") from None
    compiler = "g++" if language == "c++" else "nvcc"
    if words[0] != compiler:
        raise fail(f"the Build line of a {path.suffix} file must start with {compiler}")
    if words.count(path.name) != 1:
        raise fail(f"the Build line must name {path.name} once")
    if words.count("-o") != 1 or words.index("-o") + 1 >= len(words):
        raise fail("the Build line must name the program with one '-o NAME'")
    program = words[words.index("-o") + 1]
    if not re.fullmatch(r"[A-Za-z0-9_]+", program):
        raise fail(f"the program name '{program}' must consist of letters, digits and _")
    if run_words[0] != f"./{program}":
        raise fail(f"the Run line must start with ./{program}")
    return {
        "section": heading[1], "title": heading[2].strip(), "summary": text, "build": build,
        "run": run, "program": program, "stderr": named["Stderr"], "language": language,
    }


def build_flags(lesson: Lesson) -> list[str]:
    """The options of the Build line: all words but the compiler, the source and -o NAME."""
    words = shlex.split(lesson.build)[1:]
    at = words.index("-o")
    del words[at:at + 2]
    words.remove(lesson.path.name)
    return words


def _parse_add_lesson(text: str, where: str) -> tuple[str, dict[str, list[str]]]:
    words = text.split()
    if not words:
        raise CourseError(f"{where}: add_lesson() names no file")
    options: dict[str, list[str]] = {"LABELS": [], "CPU_DEFINES": [], "TIMEOUT": []}
    current = None
    for word in words[1:]:
        if word in options:
            current = word
        elif current is None:
            raise CourseError(f"{where}: unexpected '{word}' in add_lesson()")
        else:
            options[current].append(word)
    return words[0], options


def lessons(root: Path = ROOT) -> list[Lesson]:
    """All lessons in reading order. Raises CourseError for the first thing that is wrong."""
    root = Path(root)
    found: list[Lesson] = []
    for number, line in enumerate(read_text(root / "CMakeLists.txt").splitlines(), start=1):
        if not re.match(r"\s*add_lesson\s*\(", line):
            continue
        where = f"CMakeLists.txt:{number}"
        call = re.fullmatch(r"add_lesson\(([^()#]*)\)\s*", line)
        if not call:
            raise CourseError(f"{where}: add_lesson(...) must stand on one line of its own")
        name, options = _parse_add_lesson(call[1], where)
        path = Path(name)
        if not re.fullmatch(r"(chapter|day)\d\d/[A-Za-z0-9_]+\.(cpp|cu)", name):
            raise CourseError(f"{where}: '{name}' is not <chapter>/<stem>.cpp or .cu")
        if not (root / path).is_file():
            raise CourseError(f"{where}: there is no file {name}")
        labels = tuple(options["LABELS"])
        if not labels or any(label not in LABELS for label in labels):
            raise CourseError(f"{where}: LABELS must be one or more of {', '.join(LABELS)}")
        fields = parse_header(root / path)
        if fields["section"].split(".")[0] != str(int(re.sub(r"\D", "", path.parent.name))):
            raise CourseError(f"{name}: header: section {fields['section']} is not one of "
                              f"{path.parent.name}")
        leading = re.match(r"(\d+)_", path.stem)
        found.append(Lesson(
            path=path, chapter=path.parent.name, stem=path.stem,
            id=leading[1] if leading else path.stem, labels=labels,
            transcript=Path("expected") / path.parent.name / f"{path.stem}.txt",
            cpu_defines=tuple(options["CPU_DEFINES"]), root=root, **fields))
    for what in ("id", "stem", "program"):
        seen: dict[str, Lesson] = {}
        for lesson in found:
            key = getattr(lesson, what)
            if key in seen:
                raise CourseError(f"{seen[key].path} and {lesson.path} have the same {what} {key}")
            seen[key] = lesson
    return found


def find(text: str, root: Path = ROOT) -> list[Lesson]:
    """The lessons that a reader means: an id (19), a stem, a path, or a chapter (chapter07, 29)."""
    everything = lessons(root)
    wanted = text.strip().replace("\\", "/").rstrip("/")
    if not wanted:
        raise CourseError("an empty name selects no lesson")
    for matches in (
        [lesson for lesson in everything if wanted in (lesson.id, lesson.stem)],
        [lesson for lesson in everything
         if wanted in (lesson.path.name, str(lesson.path), f"./{lesson.path}", str(lesson.file))],
        [lesson for lesson in everything
         if wanted == lesson.chapter or wanted.isdecimal()
         and int(wanted) == int(re.sub(r"\D", "", lesson.chapter))],
    ):
        if matches:
            return matches
    given = Path(text)
    if given.exists():
        matches = [lesson for lesson in everything if given.resolve() == lesson.file.resolve()]
        if matches:
            return matches
    known = " ".join(lesson.id for lesson in everything)
    raise CourseError(f"no lesson is called '{text}'; there are: {known}")


def _between(path: Path, kind: str, name: str) -> str:
    lines = read_text(Path(path)).splitlines(keepends=True)
    begin, end = f"// {kind}: {name}", f"// end {kind}: {name}"
    starts = [i for i, line in enumerate(lines) if line.strip() == begin]
    ends = [i for i, line in enumerate(lines) if line.strip() == end]
    if len(starts) != 1 or len(ends) != 1 or ends[0] < starts[0]:
        raise CourseError(f"{path}: needs one '{begin}' and, below it, one '{end}'")
    return "".join(lines[starts[0] + 1:ends[0]])


def snippet(path: Path, name: str) -> str:
    """The lines between `// snippet: NAME` and `// end snippet: NAME`."""
    return _between(path, "snippet", name)


def common_block(path: Path, name: str) -> str:
    """The lines between `// common: NAME` and `// end common: NAME`."""
    return _between(path, "common", name)


def block_names(path: Path, kind: str = "common") -> list[str]:
    """The names of all blocks of a kind that a file opens, in order."""
    opening = re.compile(rf"\s*// {kind}: (\S+)\s*")
    matches = (opening.fullmatch(line) for line in read_text(Path(path)).splitlines())
    return [match[1] for match in matches if match]


# ---- what all tools share ------------------------------------------------------------------------

class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong; argparse would print the whole usage in front of it."""

    def __init__(self, description: str | None = None, **options):
        super().__init__(description=description,
                         formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; try --help\n")


def end_on_signals() -> None:
    """Turn SIGTERM and SIGHUP into an exception, so that `finally` ends what was started."""
    def end(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


def reason(error: OSError) -> str:
    """What the system says, and of which file where there is one."""
    name = error.filename2 or error.filename  # The second is the one that is written.
    return (f"{name}: " if name else "") + (error.strerror or str(error))


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file in one step: a reader sees the old one or the new one, never a part.

    A text may quote a path with letters that the locale lacks.
    """
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogateescape")
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def flush() -> None:
    if sys.stdout:  # There is none where the caller has closed it.
        sys.stdout.flush()


def run_tool(main: Callable[[], int]) -> int:
    """The exit status of a tool's main(). However it ends, one line on stderr says so."""
    end_on_signals()
    for stream in (sys.stdout, sys.stderr):
        if stream:  # A path may have letters that the locale lacks.
            stream.reconfigure(errors="backslashreplace")
    message = ""
    try:
        status = main()
        flush()  # Whether the disk is full may show only now.
    except BrokenPipeError:
        status = 1  # The reader has gone; so do we.
    except OSError as error:
        status, message = 1, reason(error)
    except KeyboardInterrupt:
        status, message = 130, "interrupted"
    except SystemExit as end:
        if end.code not in (128 + signal.SIGTERM, 128 + signal.SIGHUP):
            raise
        status, message = end.code, f"ended by {signal.Signals(end.code - 128).name}"
    if message:
        print(f"{Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    try:
        flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python would try again and say so.
    return status


def as_dict(lesson: Lesson) -> dict:
    fields = {key: str(value) if isinstance(value, Path) else value
              for key, value in dataclasses.asdict(lesson).items() if key != "root"}
    fields["flags"] = build_flags(lesson)
    return fields


def cmake_fields(path: Path) -> str:
    """What CMake needs of one header, one `KEY=VALUE;VALUE` a line."""
    fields = parse_header(path)
    lesson = Lesson(path=Path(path.name), chapter="", stem=path.stem, id="", labels=(),
                    transcript=Path(), **fields)
    leading = re.match(r"(\d+)_", path.stem)
    return "\n".join([f"id={leading[1] if leading else path.stem}",
                      f"program={lesson.program}", "flags=" + ";".join(build_flags(lesson))])


def main(argv: list[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("lesson", nargs="*", help="id, stem, path or chapter; default: all")
    parser.add_argument("--json", action="store_true", help="print all fields as JSON")
    parser.add_argument("--field", metavar="NAME", help="print only this field of each lesson")
    parser.add_argument("--cmake", metavar="FILE", type=Path, help="fields of FILE for CMake")
    options = parser.parse_args(argv)
    try:
        if options.cmake:
            print(cmake_fields(options.cmake))
            return 0
        chosen = lessons() if not options.lesson else [
            lesson for text in options.lesson for lesson in find(text)]
        if options.field:
            if chosen and options.field not in as_dict(chosen[0]):
                raise CourseError(f"there is no field '{options.field}'")
            for lesson in chosen:
                print(as_dict(lesson)[options.field])
        elif options.json:
            print(json.dumps([as_dict(lesson) for lesson in chosen], indent=2))
        else:
            for lesson in chosen:
                print(f"{lesson.id:<24} {lesson.section:<5} {lesson.title}")
    except CourseError as error:
        print(f"course.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(run_tool(main))
