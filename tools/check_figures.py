#!/usr/bin/env python3
"""Check that every figure about hardware in a page or a comment comes from recorded evidence.

    python3 tools/check_figures.py            check every .md file and every lesson's comments
    python3 tools/check_figures.py FILE...    check only these

A figure about hardware is a number with one of
    ms  us  µs  ns  GB/s  TB/s  GHz              (the long names of the units of time, too)
    3.2x   3.2×   3.2 times   4 times faster     (times: with decimals, or before a comparing word)
    97 %                                         (where the paragraph is about speed)

It may stand where it stands for one of these reasons:
1. It is evidence: a file of evidence has a figure of that unit which rounds to it. Microseconds and
   milliseconds are one unit here, and so are GB/s and TB/s.
2. It is a quotient: a number of times, or a percentage, that follows from two figures of one unit
   in the same paragraph, both of them evidence.
3. It is part of a lesson's fixed output: a number of times or a percentage that stands in a
   transcript outside the masks.
4. Its paragraph says where it comes from: `(course text)` for what the course's text claims,
   `(datasheet)` for what the maker of a card says, `(arithmetic)` for what was not measured but
   worked out. A table or a fenced block takes the mark of the paragraph right above it too.

Blocks that tools/sync_docs.py copies from transcripts and sources are left out: they are checked
where they come from.

Exit status: 0 all well, 1 there is a figure from nowhere, 2 wrong use.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools import course, evidence  # noqa: E402
from tools.evidence import NUMBER, EvidenceError  # noqa: E402

MARKS = ("(course text)", "(datasheet)", "(arithmetic)")
COMPARING = r"(?:as|faster|slower|more|less|fewer|longer|shorter|higher|lower|the|CUB|its|that|too)"
SPEED = re.compile(r"(?i)floor|CUB|peak|bandwidth|speed|faster|slower|throughput|memory rate")
FIGURE = re.compile(
    rf"(?<![\w.,])({NUMBER})\s?"
    r"(?:(ms|us|µs|μs|ns|GB/s|TB/s|GHz|milliseconds?|microseconds?|nanoseconds?)(?![\w/])"
    rf"|(?<=\d)(x\b|×)(?!\s?\d)|(times)(?=\s{COMPARING}\b)|(%))")
DECIMAL_TIMES = re.compile(r"(?<![\w.,])(\d+\.\d+)\s(times)\b")
UNITS = {**evidence.UNIT_WORDS, "ns": ("ms", 1e-6), "GHz": ("GHz", 1.0), "millisecond": ("ms", 1.0),
         "microsecond": ("ms", 1e-3), "nanosecond": ("ms", 1e-6)}
COPIED = re.compile(r"<!-- (?:snippet|transcript|lessons): .* -->")


@dataclass
class Figure:
    text: str  # as it stands, "3.2 times"
    line: int
    unit: str
    value: float
    slack: float  # half a unit of the last digit


@dataclass
class Block:
    """A paragraph, a table or a fenced block."""
    lines: list[tuple[int, str]] = field(default_factory=list)
    marked: bool = False

    @property
    def text(self) -> str:
        return "\n".join(text for _, text in self.lines)


def figures_of(block: Block) -> list[Figure]:
    found = {}
    about_speed = SPEED.search(block.text)
    for number, text in block.lines:
        text = re.sub(r"https?://\S+", "", text)
        for pattern in (FIGURE, DECIMAL_TIMES):
            for match in pattern.finditer(text):
                word = next(group for group in match.groups()[1:] if group)
                unit, scale = UNITS[word if word in UNITS else word.rstrip("s")]
                if unit == "%" and not about_speed:
                    continue
                found[number, match.start()] = Figure(
                    match[0].strip(), number, unit, evidence.number(match[1]) * scale,
                    evidence.half_unit(match[1]) * scale)
    return [found[place] for place in sorted(found)]


def pages(text: str) -> list[Block]:
    """The blocks of a page."""
    blocks, current, fence, copied = [], Block(), "", False
    for number, line in enumerate(text.splitlines(), start=1):
        if not fence and COPIED.fullmatch(line.strip()):
            copied = True
        if copied:
            copied = line.strip() != "<!-- end -->"
            continue
        mark = re.match(r"\s*(```|~~~)", line)
        starts = bool(mark) and not fence
        ends = bool(mark) and fence == mark[1]
        table = line.lstrip().startswith("|")
        was_table = bool(current.lines) and current.lines[-1][1].lstrip().startswith("|")
        if (not line.strip() and not fence) or starts or (table != was_table and not fence):
            blocks.append(current)
            current = Block()
        if line.strip() or fence:
            current.lines.append((number, line))
        fence = mark[1] if starts else "" if ends else fence
        if ends:
            blocks.append(current)
            current = Block()
    return mark_blocks([*blocks, current])


def mark_blocks(blocks: list[Block]) -> list[Block]:
    blocks = [block for block in blocks if block.lines]
    for at, block in enumerate(blocks):
        block.marked = any(mark in block.text for mark in MARKS)
        first = block.lines[0][1].lstrip()
        if at and first.startswith(("|", "```", "~~~")) and blocks[at - 1].marked:
            block.marked = True
    return blocks


def comments(text: str) -> list[Block]:
    """The comments of a source, one block a paragraph."""
    blocks, current = [], Block()
    for number, line in enumerate(text.splitlines(), start=1):
        comment = re.search(r"(?:^|\s)//(.*)$", line)
        if comment and comment[1].strip():
            current.lines.append((number, comment[1]))
        else:
            blocks.append(current)
            current = Block()
    return mark_blocks([*blocks, current])


@dataclass
class Known:
    """What may be quoted: figures of evidence as (unit, value), and the transcripts' fixed text."""
    recorded: list[tuple[str, float]]
    fixed: set[str]

    def is_recorded(self, figure: Figure) -> bool:
        slack = figure.slack * (1 + 1e-9)
        return any(unit == figure.unit and abs(value - figure.value) <= slack
                   for unit, value in self.recorded)

    def is_fixed(self, figure: Figure) -> bool:
        digits = re.match(NUMBER, figure.text)[0]
        return figure.unit in ("times", "%") and digits in self.fixed


def known(root: Path) -> Known:
    recorded = []
    for path in evidence.files(root):
        found = evidence.parse(path)
        recorded += evidence.figures(found.stdout + "".join(found.stderr))
        recorded += [("GB/s", evidence.memory_rate_gbs(found)),
                     ("GHz", found.integer("SM clock kHz") / 1e6),
                     ("GHz", found.integer("memory clock kHz") / 1e6)]
    fixed: set[str] = set()
    for path in sorted(root.glob("expected/*/*.txt")):
        text = re.sub(r"\{\{[^{}]*\}\}", " ", course.read_text(path))
        fixed |= set(re.findall(NUMBER, text))
    return Known(recorded, fixed)


def quotient(figure: Figure, sources: list[Figure]) -> bool:
    """Whether a number of times or a percentage follows from two of these figures."""
    scale = {"times": 1.0, "%": 100.0}.get(figure.unit)
    if scale is None:
        return False
    for over in sources:
        for under in sources:
            if over is under or over.unit != under.unit or under.value <= under.slack:
                continue
            low = (over.value - over.slack) / (under.value + under.slack) * scale - figure.slack
            high = (over.value + over.slack) / (under.value - under.slack) * scale + figure.slack
            if low <= figure.value <= high:
                return True
    return False


def check_text(blocks: list[Block], name: str, quotable: Known) -> list[str]:
    problems = []
    for block in blocks:
        if block.marked:
            continue
        figures = figures_of(block)
        sources = [one for one in figures
                   if one.unit in ("ms", "GB/s") and quotable.is_recorded(one)]
        for figure in figures:
            if not (quotable.is_recorded(figure) or quotable.is_fixed(figure)
                    or quotient(figure, sources)):
                problems.append(f"{name}:{figure.line}: '{figure.text}' stands in no file of "
                                f"evidence; quote one, or mark the paragraph {', '.join(MARKS)}")
    return problems


def to_check(root: Path) -> list[Path]:
    everything = [path for path in root.rglob("*.md")
                  if not any(part.startswith((".", "build"))
                             for part in path.relative_to(root).parts[:-1])]
    for pattern in ("chapter*/*.c*", "day*/*.c*", "common/*.h"):
        everything += root.glob(pattern)
    return sorted(everything)


def main(argv: list[str] | None = None, root: Path = course.ROOT) -> int:
    parser = course.Parser(__doc__)
    parser.add_argument("file", nargs="*", type=Path, help="default: all pages and all lessons")
    options = parser.parse_args(argv)
    try:
        quotable = known(root)
        problems = []
        paths = options.file or to_check(root)
        for path in paths:
            text = course.read_text(path)
            blocks = pages(text) if path.suffix == ".md" else comments(text)
            name = path.resolve()
            name = name.relative_to(root) if name.is_relative_to(root) else path
            problems += check_text(blocks, str(name), quotable)
    except (course.CourseError, EvidenceError) as error:
        print(f"check_figures.py: {error}", file=sys.stderr)
        return 2
    for problem in problems:
        print(problem)
    print(f"{len(paths)} files: " + (f"{len(problems)} figures from nowhere" if problems
                                     else "every figure has its source"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
