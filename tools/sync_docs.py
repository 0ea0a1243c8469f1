#!/usr/bin/env python3
"""Keep what the pages quote equal to where it comes from: code, transcripts, evidence, the table.

    python3 tools/sync_docs.py              renew every marked block in every .md file
    python3 tools/sync_docs.py --check      change nothing; one line for each block that differs
    python3 tools/sync_docs.py README.md    only the named pages
    python3 tools/sync_docs.py --runs       also run the commands whose output is quoted (a minute)

A page never holds a second copy of anything by hand. It says between two markers what stands there,
each marker on a line of its own; the lines in between are written by this tool:

    <!-- snippet: day29/histogram.cu private-kernel -->
    <!-- end -->

Kinds of block:
    snippet: FILE NAME             the lines between `// snippet: NAME` and `// end snippet: NAME`,
                                   or, where FILE has no such lines, the function called NAME
    transcript: FILE [FROM [TO]]   expected/FILE, or only from the line that holds the text FROM to
                                   the next one that holds TO (quote texts that have blanks)
    evidence: LESSON [FROM [TO]]   what the newest recorded run of LESSON printed
    stderr: LESSON                 what the first run in that record said on stderr
    counters: LESSON [FROM [TO]]   what the profiler counted in the newest record of that
    plot: LESSON ALT               the picture of the newest recorded run; ALT says what it shows
    run: COMMAND | TEXT | ...      with --runs: the different lines that COMMAND prints that hold
                                   one of the texts, without addresses and the path of this folder
    lessons: table                 the lessons in reading order
    lessons: links                 their Compiler Explorer links
    lessons: commands LESSON       the lines that build and run one lesson

Blanks at the end of a line are left out in the pages: editors remove them there.

Exit status: 0 all well, 1 a block differs (--check), 2 wrong use or a block that cannot be made.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools import check_transcript, course, evidence, explorer_link  # noqa: E402

MARKER = re.compile(
    r"<!-- (snippet|transcript|evidence|stderr|counters|plot|run|lessons): (.*?) -->")
END = "<!-- end -->"
FENCE = re.compile(r"\s*(```|~~~)")
NO_RUN = "No run of this lesson has been recorded yet."


class DocsError(Exception):
    """A block that cannot be made; the message is one line that says where and why."""


@dataclass
class Block:
    kind: str
    arguments: str
    line: int  # of the opening marker, counted from 1
    body: list[str]  # what stands in the page now


# What a block holds. Each function takes the page, the words after the colon and the root of the
# repository, and returns lines.


def fenced(language: str, lines: list[str]) -> list[str]:
    lines = [line.rstrip() for line in lines]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return [f"```{language}", *lines, "```"]


def function_text(path: Path, name: str) -> str:
    """A function at the outermost level: the comment above it, its head, its body up to `}`."""
    lines = course.read_text(path).splitlines()
    head = re.compile(rf"[A-Za-z_](__launch_bounds__\([^)]*\)|[^(){{}}=])*\b{re.escape(name)}\(")
    starts = [i for i, line in enumerate(lines)
              if head.match(line) and not lines[i].rstrip().endswith(";")]
    if len(starts) != 1:
        raise course.CourseError(
            f"{path.name}: has neither a block `// snippet: {name}` nor one function of that name")
    start = end = starts[0]
    while end < len(lines) and lines[end] != "}":
        end += 1
    if end == len(lines):
        raise course.CourseError(f"{path.name}: the function {name} has no closing brace")
    while start > 0 and re.match(r"//(?! (end )?(common|snippet): )|template\b", lines[start - 1]):
        start -= 1
    return "\n".join(lines[start:end + 1])


def excerpt(lines: list[str], words: list[str], source: str) -> list[str]:
    """From the line that holds words[0] to the next that holds words[1]; all without words."""
    if not words:
        return lines
    for start, line in enumerate(lines):
        if words[0] in line:
            break
    else:
        raise DocsError(f"{source} has no line with '{words[0]}'")
    if len(words) == 1:
        return lines[start:]
    for end in range(start, len(lines)):
        if words[1] in lines[end]:
            return lines[start:end + 1]
    raise DocsError(f"{source} has no line with '{words[1]}' after '{words[0]}'")


def make_snippet(page: Path, words: list[str], root: Path) -> list[str]:
    if len(words) != 2:
        raise DocsError("a snippet needs a file and a name")
    path = root / words[0]
    if words[1] in course.block_names(path, "snippet"):
        text = course.snippet(path, words[1])
    else:
        text = function_text(path, words[1])
    return fenced("cuda" if path.suffix == ".cu" else "cpp", textwrap.dedent(text).splitlines())


def make_transcript(page: Path, words: list[str], root: Path) -> list[str]:
    if not 1 <= len(words) <= 3:
        raise DocsError("a transcript needs a file under expected/ and at most two texts")
    lines = course.read_text(root / "expected" / words[0]).splitlines()
    return fenced("text", excerpt(lines, words[1:], words[0]))


def newest_run(lesson: Path, root: Path, kind: str = "") -> Path | None:
    """The evidence file of a lesson with the latest date in its name."""
    runs = (root / lesson.parent / "evidence").glob(f"run-????-??-??-*-{lesson.stem}{kind}.txt")
    return max(runs, key=lambda path: path.name[:14], default=None)


def caption(run: evidence.Evidence, page: Path) -> str:
    link = Path(os.path.relpath(run.path, page.parent)).as_posix()
    return f"Recorded on {run.path.name[4:14]}, {run.get('gpu')}: [{run.path.name}]({link})"


def recorded(words: list[str], root: Path, kind: str = "") -> evidence.Evidence | None:
    """The newest record of the lesson that the first word names."""
    if not words or not (root / words[0]).is_file():
        raise DocsError("the first word must be a lesson, for example day29/histogram.cu")
    run = newest_run(Path(words[0]), root, kind)
    return evidence.parse(run) if run else None


def make_evidence(page: Path, words: list[str], root: Path, kind: str = "") -> list[str]:
    run = recorded(words, root, kind)
    if len(words) > 3:
        raise DocsError("evidence needs a lesson and at most two texts")
    if run is None:
        return [NO_RUN]
    return [caption(run, page), "",
            *fenced("text", excerpt(run.stdout.splitlines(), words[1:], run.path.name))]


def make_stderr(page: Path, words: list[str], root: Path) -> list[str]:
    run = recorded(words, root)
    if run is None:
        return [NO_RUN]
    if not run.stderr:
        raise DocsError(f"{run.path.name} records nothing on stderr")
    return [caption(run, page), "", *fenced("text", run.stderr[0].splitlines())]


def make_counters(page: Path, words: list[str], root: Path) -> list[str]:
    return make_evidence(page, words, root, "-counters")


def make_plot(page: Path, words: list[str], root: Path) -> list[str]:
    run = recorded(words, root)
    if len(words) != 2:
        raise DocsError("a plot needs a lesson and, in quotes, what the picture shows")
    if run is None:
        return [NO_RUN]
    picture = run.path.with_suffix(".svg")
    if not picture.is_file():
        raise DocsError(f"there is no {picture.name}; draw it with tools/plot_evidence.py")
    return [f"![{words[1]}]({Path(os.path.relpath(picture, page.parent)).as_posix()})"]


def make_run(page: Path, words: list[str], root: Path) -> list[str]:
    command, *texts = " ".join(words).split(" | ")
    program, *arguments = command.split()
    ran = check_transcript.run_program(
        [sys.executable if program == "python3" else program, *arguments], 600, cwd=str(root))
    if ran.stopped:
        raise DocsError(f"the command {ran.stopped}")
    output = (ran.stdout + ran.stderr).decode("utf-8", "replace").replace(f"{root}/", "")
    output = re.sub(r" at 0x[0-9a-f]+|\(pid=\d+\)| \(BuildId: \w+\)| \(\S+\+0x[0-9a-f]+\)", "",
                    output)
    lines = [line for line in output.splitlines() if any(text in line for text in texts or [""])]
    if not lines:
        raise DocsError(f"the command printed no such line (exit status {ran.status})")
    return fenced("text", list(dict.fromkeys(lines)))


# What a lesson shows, in one line of the table. A lesson that is not listed gets its title.
SHOWS = {
    "40": "One thread counts 1000 elements with one loop, and nothing can go wrong.",
    "19": "32 lanes run `hist[b]++` together: 682 of 1000 counts are lost, with atomicAdd none.",
    "41": "The same loop at the size of the next lesson.",
    "20": "A private copy for each block: 128 global atomics in place of 2048.",
    "42": "Counts, offsets, cursors: three loops sort without comparing two keys.",
    "21": "The three loops as kernels. The result is sorted, and on a GPU it is not stable.",
    "90": "What a race leaves on real hardware: never more than the model, mostly far less.",
    "91": "Slots by place and not by arrival, and the radix sort that needs this.",
    "92": "The same sort made fast: one atomic for a rank, a check of it, and CUB beside it.",
    "histogram": "64 MiB, three inputs, two kernels, and the clock: what contention costs.",
    "histogram_at_the_floor": "How fast can it be? Wide loads, bank conflicts, a column per lane.",
}


PASTE = "[to paste](#in-compiler-explorer)"  # of a lesson that is too long for a link


def make_lessons(page: Path, words: list[str], root: Path) -> list[str]:
    lessons = course.lessons(root)
    if words[:1] == ["commands"] and len(words) == 2:
        lesson, *others = course.find(words[1], root)
        if others:
            raise DocsError(f"'{words[1]}' means more than one lesson")
        return ["```sh", f"cd {lesson.chapter}", lesson.build, lesson.run, "cd ..", "```"]
    if words == ["links"]:
        lines = []
        for lesson in lessons:
            url = explorer_link.best_link(lesson)
            if url:
                lines.append(f"[ce-{lesson.id}]: {url}")
        return lines
    if words != ["table"]:
        raise DocsError("lessons needs 'table', 'links' or 'commands LESSON'")
    lines = ["| Section | Lesson | What it shows | Online |", "|---|---|---|---|"]
    for lesson in lessons:
        link = Path(os.path.relpath(lesson.file, page.parent)).as_posix()
        online = f"[open][ce-{lesson.id}]" if explorer_link.best_link(lesson) else PASTE
        shows = SHOWS.get(lesson.id, f"{lesson.title}.")
        lines.append(f"| {lesson.section} | [{lesson.path.name}]({link}) | "
                     f"{shows} | {online} |")
    lines += ["", "The line that builds each one, in its own folder:", "", "```sh"]
    for chapter in dict.fromkeys(lesson.chapter for lesson in lessons):
        lines.append(f"cd {chapter}")
        lines += [lesson.build for lesson in lessons if lesson.chapter == chapter]
        lines.append("cd ..")
    return [*lines, "```"]


MAKERS = {"snippet": make_snippet, "transcript": make_transcript, "evidence": make_evidence,
          "stderr": make_stderr, "counters": make_counters, "plot": make_plot, "run": make_run,
          "lessons": make_lessons}


# Reading and writing pages.


def blocks_of(text: str, name: str) -> list[Block]:
    """The marked blocks of a page. Markers inside a code fence are an example and stay as is."""
    blocks: list[Block] = []
    current: Block | None = None
    in_fence = False
    for number, line in enumerate(text.split("\n"), start=1):
        marker = MARKER.fullmatch(line.rstrip())
        if current is None:
            if FENCE.match(line):
                in_fence = not in_fence
            elif in_fence:
                continue
            elif marker:
                current = Block(marker[1], marker[2], number, [])
            elif line.rstrip() == END:
                raise DocsError(f"{name}:{number}: '{END}' without a marker above it")
            elif re.match(r"<!-- \w+: .*-->", line):
                raise DocsError(f"{name}:{number}: not a known marker: {line.strip()}")
        elif line.rstrip() == END:
            blocks.append(current)
            current = None
        elif marker:
            raise DocsError(f"{name}:{number}: a marker inside the block of line {current.line}")
        else:
            current.body.append(line)
    if current:
        raise DocsError(f"{name}:{current.line}: this marker has no '{END}' below it")
    return blocks


def renewed(text: str, page: Path, root: Path, runs: bool = False) -> tuple[str, list[str]]:
    """The page with every block made anew, and one line for each block that was different.

    Without `runs`, the output of commands stays as it is; there must only be some.
    """
    name = page.relative_to(root).as_posix() if page.is_relative_to(root) else str(page)
    lines = text.split("\n")
    differences = []
    for block in reversed(blocks_of(text, name)):
        what = f"{block.kind}: {block.arguments}"
        if block.kind == "run" and not runs:
            if not block.body:
                differences.insert(0, f"{name}:{block.line}: {what} was never run, see --runs")
            continue
        try:
            words = block.arguments.split() if block.kind == "run" else shlex.split(block.arguments)
            wanted = MAKERS[block.kind](page, words, root)
        except (DocsError, course.CourseError, evidence.EvidenceError, ValueError) as error:
            raise DocsError(f"{name}:{block.line}: {what}: {error}") from None
        if wanted != block.body:
            lines[block.line:block.line + len(block.body)] = wanted
            differences.insert(0, f"{name}:{block.line}: {what} differs from its source")
    return "\n".join(lines), differences


def pages(root: Path) -> list[Path]:
    """Every .md file of the course; hidden and build folders hold none."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "build")))
        found += [Path(folder) / name for name in sorted(files) if name.endswith(".md")]
    return found


def main(argv: list[str] | None = None) -> int:
    parser = course.Parser(__doc__)
    parser.add_argument("page", nargs="*", type=Path, help="a .md file; default: all of them")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 on differences")
    parser.add_argument("--runs", action="store_true", help="run the commands that are quoted too")
    parser.add_argument("--root", type=Path, default=course.ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    root = options.root.resolve()
    differing = 0
    try:
        for page in [page.resolve() for page in options.page] or pages(root):
            text = course.read_text(page)
            new_text, differences = renewed(text, page, root, options.runs)
            differing += len(differences)
            for difference in differences:
                print(difference if options.check else difference.replace("differs", "is renewed"))
            if new_text != text and not options.check:
                course.write_atomically(page, new_text)
    except OSError as error:
        print(f"sync_docs.py: {course.reason(error)}", file=sys.stderr)
        return 2
    except (DocsError, course.CourseError, RuntimeError) as error:  # A loop of links.
        print(f"sync_docs.py: {error}", file=sys.stderr)
        return 2
    if options.check and differing:
        print("`python3 tools/sync_docs.py` renews them.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
