#!/usr/bin/env python3
"""Print a Compiler Explorer link that opens a lesson there, compiled and run.

    python3 tools/explorer_link.py 20             the link, on stdout
    python3 tools/explorer_link.py 20 --text      the text to paste by hand instead
    python3 tools/explorer_link.py 29             several lessons: one line each, name and link

The link carries the whole lesson in itself; nothing is stored on the server. Links of more than
8,000 characters do not work there. A lesson that is too long for one goes without its comments,
which changes nothing that it prints. Where even that is too long, the tool says so on stderr and
writes the text to paste to stdout.

What runs there is a small machine: 200 MiB of memory and 20 seconds. The options below make the
inputs of the long lessons small enough for it.

Exit status: 0 all well, 2 wrong use.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
import sys
import zlib
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools import course  # noqa: E402

SITE = "https://godbolt.org"
MAX_LENGTH = 8000  # characters of a URL

# The compilers there that build our lessons. The GPUs behind nvcc130 are T4 cards, sm_75.
COMPILERS = {
    "c++": ("g142", "x86-64 gcc 14.2"),
    "cuda": ("nvcc130", "NVCC 13.0.0"),
}
ARCHITECTURE = "-arch=sm_75"

# Sizes that suit the small machine there, by the stem of the lesson.
SMALL_SIZES = {
    "91_stable_counting_sort": ["-DSORT_MAX_N=1048576", "-DSORT_RUNS=10"],
    "92_counting_sort_at_speed": ["-DSORT_KEYS=1048576u", "-DSORT_RUNS=5"],
    "histogram": ["-DHISTOGRAM_BYTES=4194915"],
    "histogram_at_the_floor": ["-DHISTOGRAM_SMALL_BYTES=1049187",
                               "-DHISTOGRAM_LARGE_BYTES=4194915", "-DHISTOGRAM_RUNS=3"],
}


def options_for(lesson: course.Lesson) -> str:
    """The options of the lesson's own Build line, for the machine there."""
    flags = [flag for flag in course.build_flags(lesson) if not flag.startswith("-arch")]
    if lesson.language == "cuda":
        flags.append(ARCHITECTURE)
    return shlex.join(flags + SMALL_SIZES.get(lesson.stem, []))


def client_state(lesson: course.Lesson, source: str) -> dict:
    compiler = {"id": COMPILERS[lesson.language][0], "options": options_for(lesson), "libs": []}
    executor = {"arguments": "", "stdin": "", "compilerOutputVisible": True, "compiler": compiler}
    return {"sessions": [{"id": 1, "language": lesson.language, "filename": lesson.path.name,
                          "source": source, "compilers": [compiler], "executors": [executor]}]}


def encode(state: dict) -> str:
    packed = zlib.compress(json.dumps(state, separators=(",", ":")).encode("ascii"), 9)
    return f"{SITE}/clientstate/" + base64.urlsafe_b64encode(packed).decode("ascii").rstrip("=")


def decode(url: str) -> dict:
    """The state that a link carries: the inverse of encode()."""
    text = url.removeprefix(f"{SITE}/clientstate/")
    packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return json.loads(zlib.decompress(packed))


TOKEN = re.compile(
    r"""(?P<raw>\bR"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<number>\b[0-9](?:'?[0-9A-Za-z_.])*)
      | (?P<character>'(?:\\.|[^'\\\n])+')
      | (?P<line>//[^\n]*)
      | (?P<block>/\*.*?\*/)""", re.VERBOSE | re.DOTALL)


def without_comments(source: str) -> str:
    """The same program without comments and empty lines; strings and characters are untouched."""
    kept = []  # the text, with the parts that must not be touched put aside
    aside: list[str] = []
    at = 0
    for token in TOKEN.finditer(source):
        kept.append(source[at:token.start()])
        at = token.end()
        if token.lastgroup in ("line", "block"):
            kept.append(" ")
        else:
            kept.append(f"\0{len(aside)}\0")
            aside.append(token[0])
    kept.append(source[at:])
    lines = (line.rstrip() for line in "".join(kept).split("\n"))
    text = "\n".join(line for line in lines if line) + "\n"
    return re.sub(r"\0(\d+)\0", lambda match: aside[int(match[1])], text)


def short_form(lesson: course.Lesson, source: str) -> str:
    heading = (f"// {course.SPDX}\n// {lesson.section}  {lesson.title}\n"
               f"// The comments are left out here; {lesson.path} has them.\n")
    return heading + without_comments(source)


def full_link(lesson: course.Lesson) -> str:
    return encode(client_state(lesson, course.read_text(lesson.file)))


def short_link(lesson: course.Lesson) -> str:
    source = short_form(lesson, course.read_text(lesson.file))
    return encode(client_state(lesson, source))


def best_link(lesson: course.Lesson) -> str | None:
    """The link with the comments, else the one without them, else None: too long for a link."""
    for link in (full_link(lesson), short_link(lesson)):
        if len(link) <= MAX_LENGTH:
            return link
    return None


def report(lesson: course.Lesson, with_name: bool, text_only: bool) -> None:
    compiler_id, compiler = COMPILERS[lesson.language]
    link = None if text_only else best_link(lesson)
    if link:
        if link != full_link(lesson):
            print(f"{lesson.path}: too long for a link with its comments; this one goes without",
                  file=sys.stderr)
        print(f"{lesson.id}  {link}" if with_name else link)
        return
    source = course.read_text(lesson.file)
    if not text_only:
        print(f"{lesson.path}: a link would have {len(short_link(lesson)):,} characters and "
              f"{SITE} takes {MAX_LENGTH:,}; stdout has the text to paste", file=sys.stderr)
    print(f"language {lesson.language}, compiler {compiler} ({compiler_id}), "
          f"options {options_for(lesson)}", file=sys.stderr)
    sys.stdout.write(source)


def main(argv: list[str] | None = None) -> int:
    parser = course.Parser(__doc__)
    parser.add_argument("lesson", nargs="+", help="id, stem, path or chapter")
    parser.add_argument("--text", action="store_true", help="the text to paste, not a link")
    options = parser.parse_args(argv)
    try:
        chosen = [lesson for text in options.lesson for lesson in course.find(text)]
        if options.text and len(chosen) > 1:
            raise course.CourseError("--text takes one lesson at a time")
        for lesson in chosen:
            report(lesson, with_name=len(chosen) > 1, text_only=options.text)
    except course.CourseError as error:
        print(f"explorer_link.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
