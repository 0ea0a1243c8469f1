#!/usr/bin/env python3
"""The form of a file of evidence, in one place: how it is written, read and judged.

    python3 tools/evidence.py                 list the files of evidence, one line each
    python3 tools/evidence.py FILE            print the fields of one file

A file of evidence is <chapter>/evidence/run-YYYY-MM-DD-<gpu>-<name>.txt:

    # kind: run                               header, one `# key: value` a line, a key may repeat
    # source: day29/histogram.cu
    # ...
    # stdout lines: 21
    # body sha256: ...                        of everything below the first empty line
                                              one empty line
    <stdout, verbatim>                        as many lines as the header says
    # stderr of run 1 of 20                   only for a lesson that announces lines on stderr
    <stderr, verbatim>

Exit status: 0 all well, 2 wrong use or a file that cannot be read.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools import course  # noqa: E402

# A name may end in the name of a lesson, or in that and what else was recorded of it.
NAME = re.compile(r"run-(\d{4}-\d{2}-\d{2})-([a-z0-9]+(?:-[a-z0-9]+)*)-"
                  r"(?!counters\.)([A-Za-z0-9_]+(?:-counters)?)\.txt")
STDERR_LINE = re.compile(r"# stderr of run (\d+) of (\d+)")
NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?"

# Header keys that every file has, and those that a run has besides.
COMMON_KEYS = (
    "kind", "source", "source sha256", "commit", "build line", "build line used", "nvcc",
    "host compiler", "driver", "runtime", "gpu", "compute capability", "SM count", "L2 bytes",
    "ECC", "SM clock kHz", "memory clock kHz", "memory bus bits", "memory bytes", "date",
    "regenerate", "stdout lines", "body sha256")
RUN_KEYS = ("run line", "runs", "checked against")

# What a card can do at most. The theoretical rate of its memory is two transfers a clock over the
# width of the bus. Bytes that stay in L2 from one run to the next need not come from memory, so of
# n bytes only n - L2 must; but no L2 is more than L2_FACTOR times as fast as its memory. MARGIN is
# for clocks that are rounded.
L2_FACTOR = 5.0
MARGIN = 1.02


class EvidenceError(Exception):
    """Something is wrong with a file of evidence, or with a run; the message is one line."""


@dataclass
class Evidence:
    path: Path
    fields: dict[str, list[str]]
    stdout: str
    stderr: list[str] = field(default_factory=list)  # one text a run
    body: str = ""

    def get(self, key: str) -> str:
        """The one value of a key."""
        values = self.fields.get(key, [])
        if len(values) != 1:
            raise EvidenceError(f"{self.path}: needs one line '# {key}: ...', has {len(values)}")
        return values[0]

    def integer(self, key: str) -> int:
        text = self.get(key).split()[0].replace(",", "") if self.get(key) else ""
        if not re.fullmatch(r"\d+", text):
            raise EvidenceError(f"{self.path}: '# {key}:' does not begin with a whole number")
        return int(text)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def gpu_slug(name: str) -> str:
    """The part of a file's name that stands for the GPU: 'NVIDIA H200' is 'h200'."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "-".join(word for word in words if word != "nvidia") or "gpu"


def render(fields: list[tuple[str, str]], stdout: str, stderr: list[str] | None = None) -> str:
    """The text of a file. 'stdout lines' and 'body sha256' are added to the fields."""
    if not stdout.endswith("\n"):
        raise EvidenceError("stdout is empty or its last line has no end")
    body = stdout
    for number, text in enumerate(stderr or [], start=1):
        if text and not text.endswith("\n"):
            raise EvidenceError("the last line on stderr has no end")
        body += f"# stderr of run {number} of {len(stderr or [])}\n{text}"
    lines = []
    for key, value in [*fields, ("stdout lines", str(stdout.count("\n"))),
                       ("body sha256", sha256(body.encode()))]:
        if not value or "\n" in value:
            raise EvidenceError(f"the header's '{key}' is empty or has more than one line")
        lines.append(f"# {key}: {value}\n")
    return "".join(lines) + "\n" + body


def parse(path: Path, text: str | None = None) -> Evidence:
    """Read a file. Raises EvidenceError unless it has the form that render() writes."""
    path = Path(path)
    if text is None:
        try:
            text = course.read_text(path)
        except course.CourseError as error:
            raise EvidenceError(str(error)) from None
    header, gap, body = text.partition("\n\n")
    fields: dict[str, list[str]] = {}
    for line in header.splitlines():
        match = re.fullmatch(r"# ([A-Za-z0-9 ]+): (\S.*)", line)
        if not match:
            raise EvidenceError(f"{path}: header: '{line[:60]}' is not '# key: value'")
        fields.setdefault(match[1], []).append(match[2])
    found = Evidence(path, fields, "", [], body)
    if not gap or not body.endswith("\n"):
        raise EvidenceError(f"{path}: is cut off: it has no output or ends within a line")
    lines = body.splitlines(keepends=True)
    count = found.integer("stdout lines")
    if count < 1 or count > len(lines):
        raise EvidenceError(f"{path}: is cut off: {count} lines of stdout are announced, "
                            f"{len(lines)} lines follow")
    found.stdout = "".join(lines[:count])
    for line in lines[count:]:
        if STDERR_LINE.fullmatch(line.rstrip("\n")):
            found.stderr.append("")
        elif not found.stderr:
            raise EvidenceError(f"{path}: unexpected line after stdout: '{line.rstrip()[:60]}'")
        else:
            found.stderr[-1] += line
    return found


def write_new(path: Path, text: str) -> None:
    """Write a file in one step: complete or not at all, and never over one that exists.

    The text goes to a file without a name, which is linked to its name when it is complete, so a
    process that is killed leaves nothing. Where a file system has no such files, a hidden one in
    the same directory takes that part.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    try:
        handle = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o644)
    except (OSError, AttributeError):
        handle = -1
    try:
        if handle >= 0:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                try:
                    os.link(f"/proc/self/fd/{file.fileno()}", path, follow_symlinks=True)
                    return
                except FileExistsError:
                    raise
                except OSError:
                    pass  # No /proc here: the hidden file it is.
        handle, name = tempfile.mkstemp(prefix=".run-", suffix=".part", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
            os.link(name, path)
        finally:
            os.unlink(name)
    except FileExistsError:
        raise EvidenceError(f"{path} exists; evidence is never written over") from None


def files(root: Path = course.ROOT) -> list[Path]:
    """Every file of evidence, by name."""
    return sorted(root.glob("*/evidence/run-*.txt"))


def newest(files_of_lesson: list[Path]) -> Path:
    return max(files_of_lesson, key=lambda path: path.name[:14])


def of_lesson(path: Path, root: Path = course.ROOT, kind: str = "") -> list[Path]:
    """The files of one lesson: runs, or with kind "-counters" what the profiler counted."""
    folder = root / Path(path).parent / "evidence"
    return sorted(file for file in folder.glob(f"run-*-{Path(path).stem}{kind}.txt")
                  if (match := NAME.fullmatch(file.name)) and
                  match[3] == f"{Path(path).stem}{kind}")


# What the card can do.


def memory_rate_gbs(found: Evidence) -> float:
    """The theoretical rate of the card's memory in GB/s, from the recorded clock and bus."""
    rate = 2.0 * found.integer("memory clock kHz") * 1e3 * found.integer("memory bus bits") / 8e9
    if not rate > 0:
        raise EvidenceError(f"{found.path}: no memory clock or bus width was recorded, so nobody "
                            "can say whether the figures are possible")
    return rate


def largest_rate_gbs(found: Evidence, size: float) -> float:
    """The largest plausible rate at which the card reads `size` bytes again and again."""
    beyond_l2 = size - found.integer("L2 bytes")
    factor = L2_FACTOR if beyond_l2 <= 0 else min(L2_FACTOR, size / beyond_l2)
    return memory_rate_gbs(found) * factor * MARGIN


# Tables and figures in the output.


@dataclass
class Table:
    columns: list[str]
    rows: list[dict[str, str]]
    start: int  # where in the text its columns are named


HAS_UNIT = re.compile(r"\((ms|us|GB/s|TB/s)\)")
NAMES_COLUMNS = re.compile(HAS_UNIT.pattern + r"|speedup|ratio|per instruction")


def tables(text: str) -> list[Table]:
    """The tables of an output.

    A table starts at a line of at least three column names, two or more blanks apart, of which one
    ends in a unit, `(ms)` or `(GB/s)`, or is a speedup, a ratio or so much per instruction. It
    ends before the first line that is empty or has no figure. In a row, the last columns are
    single words; what stands left of them is the text of the first column.
    """
    found: list[Table] = []
    current: Table | None = None
    at = 0
    for line in text.splitlines():
        start, at = at, at + len(line) + 1
        names = re.split(r"\s{2,}", line.strip())
        if len(names) >= 3 and NAMES_COLUMNS.search(line) and not re.search(NUMBER + r"\s*$", line):
            current = Table(names, [], start)
            found.append(current)
        elif current and re.fullmatch(r"[\s\-=+|]+", line):
            continue
        elif current and line.strip() and re.search(r"\d", line):
            row = split_row(line, current.columns)
            if row is None:
                current = None
            else:
                current.rows.append(row)
        else:
            current = None
    return found


def split_row(line: str, columns: list[str]) -> dict[str, str] | None:
    cells = re.split(r"\s{2,}", line.strip())
    if len(cells) != len(columns):  # Wide figures leave one blank only.
        words = line.split()
        rest = len(columns) - 1
        if len(words) < len(columns):
            return None
        cells = [" ".join(words[:-rest]), *words[-rest:]]
    return dict(zip(columns, cells))


def number(text: str) -> float:
    """A printed figure as a number: '67,109,475', '0.0990', '2.1x', '97.4 %'."""
    match = re.fullmatch(rf"({NUMBER})\s*(?:x|%|ms|us|GB/s|KiB|MiB|GiB)?", text.strip())
    if not match:
        raise ValueError(f"'{text}' is not a figure")
    return float(match[1].replace(",", ""))


def half_unit(text: str) -> float:
    """Half a unit of the last digit that a figure is printed with."""
    digits = re.search(NUMBER, text)[0]
    decimals = len(digits.partition(".")[2])
    return 0.5 * 10.0 ** -decimals


UNIT_WORDS = {"ms": ("ms", 1.0), "us": ("ms", 1e-3), "µs": ("ms", 1e-3), "μs": ("ms", 1e-3),
              "GB/s": ("GB/s", 1.0), "TB/s": ("GB/s", 1e3), "x": ("times", 1.0),
              "×": ("times", 1.0), "times": ("times", 1.0), "%": ("%", 1.0)}


def figures(text: str) -> list[tuple[str, float]]:
    """Every figure with a unit in an output, as (unit, value): in ms, GB/s, times or %."""
    found = []
    for match in re.finditer(rf"({NUMBER})\s?(ms|us|µs|μs|GB/s|TB/s|times|x|×|%)(?![A-Za-z])",
                             text):
        unit, scale = UNIT_WORDS[match[2]]
        found.append((unit, number(match[1]) * scale))
    for table in tables(text):
        for row in table.rows:
            for column, cell in row.items():
                unit = column_unit(column)
                if unit:
                    try:
                        value = number(cell)
                    except ValueError:
                        continue
                    found.append((UNIT_WORDS[unit][0], value * UNIT_WORDS[unit][1]))
    return found


def column_unit(column: str) -> str | None:
    match = HAS_UNIT.search(column)
    if match:
        return match[1]
    if re.search(r"speedup|ratio|factor|times", column):
        return "times"
    return "%" if "%" in column else None


def main(argv: list[str] | None = None) -> int:
    parser = course.Parser(__doc__)
    parser.add_argument("file", nargs="*", type=Path, help="files to print; default: list all")
    options = parser.parse_args(argv)
    try:
        for path in options.file:
            for key, values in parse(path).fields.items():
                for value in values:
                    print(f"{key}: {value}")
        if not options.file:
            for path in files():
                found = parse(path)
                print(f"{path.relative_to(course.ROOT)}  {found.get('gpu')}  {found.get('date')}")
    except EvidenceError as error:
        print(f"evidence.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
