#!/usr/bin/env python3
"""Check every file of evidence: that it is current, whole, and not too good to be true.

    python3 tools/check_evidence.py           check all, one line for each problem
    python3 tools/check_evidence.py FILE...   check only these

What is checked of a file (tools/evidence.py says what it looks like):
- it is whole and unchanged since it was recorded, and its name says what its header says;
- it is of the source as it is now, and of a commit that holds this source. If the source has
  changed the evidence is stale; the problem names the commands that renew it;
- its output still agrees with the transcript, and it ran on a GPU, often enough;
- every figure that is derived from others follows from them, to the printed digits (RULES);
- no figure is NaN, infinite, zero or negative, or more than the card can do: bytes that have to
  come from memory at the theoretical rate of the recorded clock and bus, L2 taken into account
  (tools/evidence.py states the margins).

What is evidence must be there: REQUIRED lists it.

Exit status: 0 all well, 1 there is a problem, 2 wrong use.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools import check_transcript, course, evidence, record_evidence  # noqa: E402
from tools.evidence import NUMBER, Evidence, EvidenceError  # noqa: E402

# What must be recorded: lessons by their stem, and what is recorded by other tools.
REQUIRED = (
    "20_privatized_histogram", "21_histogram_to_counting_sort", "90_race_on_hardware",
    "91_stable_counting_sort", "92_counting_sort_at_speed", "histogram", "histogram_at_the_floor",
    "92_counting_sort_at_speed-counters", "histogram_at_the_floor-counters", "compute_sanitizer")
LEAST_RUNS = {"21_histogram_to_counting_sort": 20}


# ---- what follows from what ----------------------------------------------------------------------

@dataclass(frozen=True)
class Rules:
    """What holds for the output of one lesson.

    quotients  (column, over, under, scale): in each row of a table with the first column it is
               over / under * scale; over and under are columns, or "bytes" for the input's size
    lines      (pattern, over, under, scale): pattern finds in the text the groups `result` and
               those two, of which "bytes" may be left out
    row_bytes  how many bytes a row's times must move at least, when it is not the input's size
    extra      a function that returns problems
    """
    quotients: tuple[tuple[str, str, str, float], ...] = ()
    lines: tuple[tuple[str, str, str, float], ...] = ()
    row_bytes: Callable[[dict[str, str]], float | None] | None = None
    extra: Callable[[Evidence], list[str]] | None = None


def follows(result: str, over: str, under: str, scale: float = 1.0) -> bool:
    """Whether a printed quotient can come from the two printed figures.

    Each figure stands for all values that are printed so: half a unit of its last digit up or down.
    """
    low, high = [(evidence.number(over) + sign * half(over))
                 / (evidence.number(under) - sign * half(under)) * scale for sign in (-1.0, 1.0)]
    slack = half(result) + 1e-9 * high
    return low - slack <= evidence.number(result) <= high + slack


def half(text: str) -> float:
    """Half a unit of the last digit; a whole number is exact unless it has a unit."""
    exact = "." not in text and not re.search(r"[a-zA-Z%]", text)
    return 0.0 if exact else evidence.half_unit(text)


def race_stays_in_bounds(found: Evidence) -> list[str]:
    """In each row min, median and max are in order, and the model is their bound.

    On a GPU the lesson checks every row against the model. A row that was checked against N, the
    bound of a run on a CPU, is no evidence for what the lesson claims about GPUs.
    """
    problems = []
    rows = re.findall(r"^ *\d+" + 5 * r" +(\d+)" + "$", found.stdout, re.MULTILINE)
    for row in rows:
        model, bound, least, median, most = map(int, row)
        if bound != model:
            problems.append(f"the bound {bound} is not the model's {model}")
        if not 1 <= least <= median <= most <= model:
            problems.append(f"not 1 <= min <= median <= max <= model: {' '.join(row)}")
    return problems or ([] if rows else ["the tables of survivors were not found"])


def sorted_bytes(row: dict[str, str]) -> float | None:
    """How many bytes a sort of that many keys moves; None in a row about something else.

    It reads each key of a byte once and writes it and an index of four bytes: six at least. The
    number of keys is written out or in units of 2^10 or 2^20, '1 Mi'.
    """
    if "keys" not in row:
        return None
    count, _, unit = row["keys"].partition(" ")
    return 6.0 * evidence.number(count) * {"": 1, "Ki": 2**10, "Mi": 2**20}[unit]


FLOOR_KERNEL = "sum, 16-byte loads"


def floor_rows_agree(found: Evidence) -> list[str]:
    """Shares of the floor, ratios to CUB and the sizes up to which a kernel wins."""
    rows = [row for table in evidence.tables(found.stdout) for row in table.rows]
    main_rows = [row for row in rows if "kernel" in row]
    problems = [] if main_rows else ["the table of kernels was not found"]
    for row in main_rows:
        like = {other["kernel"]: other["time (ms)"] for other in main_rows
                if (other["size"], other["input"]) == (row["size"], row["input"])}
        cub = next((time for kernel, time in like.items() if kernel.startswith("CUB")), "")
        for column, over, scale in (("of floor (%)", like.get(FLOOR_KERNEL, ""), 100.0),
                                    ("CUB ratio", cub, 1.0)):
            if not over or not follows(row[column], over, row["time (ms)"], scale):
                problems.append(f"{column} of '{row['kernel']}', {row['input']}, {row['size']}: "
                                f"{row[column]} does not follow from {over} and {row['time (ms)']}")
    return (problems + verdict_agrees(found, main_rows)
            + winners_agree(found, [row for row in rows if "kernel" not in row]))


def verdict_agrees(found: Evidence, rows: list[dict[str, str]]) -> list[str]:
    """The closing lines: the least of each figure over the inputs of the largest size."""
    said = re.search(r"At (\d+) bytes the sum by byte loads, .* takes (\S+) times as long as\nthe "
                     r"sum by 16-byte loads\. .* one table a block gets to (\S+) % of\nthat floor, "
                     r"and a column per lane to (\S+) %", found.stdout)
    if said is None:
        return ["the closing lines, about the largest size, were not found"]
    problems = []
    for figure, kernel in ((3, "one table a block"), (4, "column per lane")):
        shares = [row["of floor (%)"] for row in rows
                  if row["size"] == said[1] and row["kernel"] == kernel]
        if said[figure] != min(shares, key=float, default=""):
            problems.append(f"{kernel}: said to get to {said[figure]} %, the table has {shares}")
    shares = [float(row["of floor (%)"]) for row in rows
              if row["size"] == said[1] and row["kernel"] == "sum, byte loads"]
    # Both figures are rounded, to a tenth.
    if not shares or abs(float(said[2]) - 100.0 / max(shares)) > 0.05 + 5.0 / max(shares) ** 2:
        problems.append(f"byte loads are said to take {said[2]} times as long, and the table has "
                        f"{shares} % of the floor")
    return problems


def winners_agree(found: Evidence, rows: list[dict[str, str]]) -> list[str]:
    """For each input the largest size at which each kernel wins by 2 %.

    The printed times are rounded, so within half a percent a close call may go either way.
    """
    claims = re.findall(r"^  (\S.*?) +CUB (\d+), one table (\d+), column per lane (\d+)$",
                        found.stdout, re.MULTILINE)
    if not rows or [claim[0] for claim in claims] != list(dict.fromkeys(
            row["input"] for row in rows)):
        return ["the table of smaller inputs, or who wins on each of them, was not found"]
    problems = []
    columns = [column for column in rows[0] if evidence.HAS_UNIT.search(column)]
    for name, *sizes in claims:
        for column, largest in zip(columns, map(int, sizes)):
            shares = {}  # size: the share of the next best time
            for row in rows:
                if row["input"] == name:
                    best = min(evidence.number(row[other]) for other in columns if other != column)
                    shares[int(row["size"])] = evidence.number(row[column]) / best
            wins = max((size for size, share in shares.items() if share < 0.975), default=0)
            if wins > largest or (largest and shares.get(largest, 9.0) > 0.985):
                problems.append(f"{column}, {name}: said to win up to {largest}, and the table "
                                f"says {wins}")
    return problems


COUNTERS = Rules(quotients=(("wavefronts per instruction", "wavefronts", "instructions", 1.0),))
RULES: dict[str, Rules] = {
    "90_race_on_hardware": Rules(extra=race_stays_in_bounds),
    "92_counting_sort_at_speed": Rules(
        quotients=(("ratio", "CUB (ms)", "ours (ms)", 1.0),), row_bytes=sorted_bytes),
    "histogram": Rules(
        quotients=(("speedup", "global (ms)", "private (ms)", 1.0),),
        lines=((rf"(?P<ms>{NUMBER}) ms\D+(?P<result>{NUMBER}) GB/s", "bytes", "ms", 1e-6),
               (rf"histogramGlobal:\s+(?P<all>{NUMBER})[^:]+"
                rf"histogramPrivate:\s+(?P<merged>{NUMBER}).*factor of (?P<result>{NUMBER})",
                "all", "merged", 1.0))),
    "histogram_at_the_floor": Rules(
        quotients=(("rate (GB/s)", "size", "time (ms)", 1e-6),),
        row_bytes=lambda row: evidence.number(row["size"]) if "size" in row else None,
        extra=floor_rows_agree),
    "histogram_at_the_floor-counters": COUNTERS,
    "92_counting_sort_at_speed-counters": COUNTERS,
}


# ---- one file ------------------------------------------------------------------------------------

def size_above(text: str, end: int) -> str | None:
    """The input's size in force at a place: the last `N bytes` or `N keys` of over 4096 before."""
    sizes = [match[1] for match in re.finditer(rf"({NUMBER}) bytes", text[:end])
             if evidence.number(match[1]) > 4096]
    return sizes[-1] if sizes else None


def check_derived(found: Evidence, rules: Rules) -> list[str]:
    problems = []
    for column, over, under, scale in rules.quotients:
        rows = [(table, row) for table in evidence.tables(found.stdout)
                for row in table.rows if column in table.columns]
        if not rows:
            problems.append(f"the rule for the column '{column}' finds no table with it")
        for table, row in rows:
            figures = dict(row, bytes=size_above(found.stdout, table.start) or "")
            try:
                if not follows(row[column], figures[over], figures[under], scale):
                    problems.append(f"{column} of '{next(iter(row.values()))}': {row[column]} does "
                                    f"not follow from {figures[over]} and {figures[under]}")
            except (KeyError, ValueError, ZeroDivisionError) as error:
                problems.append(f"{column}: {error} in the row {list(row.values())}")
    for pattern, over, under, scale in rules.lines:
        matches = list(re.finditer(pattern, found.stdout))
        if not matches:
            problems.append(f"the rule '{pattern}' finds no line")
        for match in matches:
            figures = match.groupdict()
            figures.setdefault("bytes", size_above(found.stdout, match.start()))
            try:
                if not follows(figures["result"], figures[over], figures[under], scale):
                    problems.append(f"'{match[0]}': {figures['result']} does not follow from "
                                    f"{figures[over]} and {figures[under]}")
            except (TypeError, ValueError, ZeroDivisionError) as error:
                problems.append(f"'{match[0]}': {error}")
    return problems


def check_possible(found: Evidence, rules: Rules) -> list[str]:
    """No figure that is not a positive number, and none that is beyond the card."""
    problems = []
    text = found.stdout + "".join(found.stderr)
    for match in re.finditer(r"(?i)[-+]?\b(nan|inf|infinity)\b(?=\s|$|x|%)", text):
        problems.append(f"'{match[0]}' stands among the figures")
    for match in re.finditer(rf"(-?)({NUMBER})\s?(ms|us|GB/s|TB/s)\b", text):
        problems += beyond(found, match[1] + match[2], match[3],
                           size_above(found.stdout, match.start()), match[0])
    for table in evidence.tables(found.stdout):
        size = size_above(found.stdout, table.start)
        for row in table.rows:
            for column, cell in row.items():
                unit = evidence.column_unit(column)
                if unit is None or cell in ("-", "n/a"):
                    continue
                moved = rules.row_bytes(row) if rules.row_bytes else None
                needed = str(moved) if moved else size
                problems += beyond(found, cell, unit, needed,
                                   f"{column} of '{next(iter(row.values()))}': {cell}")
    return problems


def beyond(found: Evidence, figure: str, unit: str, size: str | None, what: str) -> list[str]:
    """Why a figure cannot be; size is that of the bytes that it is about."""
    try:
        value = evidence.number(figure)
    except ValueError:
        return [f"{what} is not a positive figure"]
    if not value > 0:
        return [f"{what} is not positive"]
    unit, scale = evidence.UNIT_WORDS[unit]
    if unit not in ("ms", "GB/s") or size is None:
        return []
    count = evidence.number(size)
    rate = value * scale if unit == "GB/s" else count / (value * scale) * 1e-6
    limit = evidence.largest_rate_gbs(found, count)
    if rate > limit:
        return [f"{what} means {rate:.0f} GB/s, and this card can do {limit:.0f} at most on "
                f"{count:,.0f} bytes"]
    return []


def check_sources(found: Evidence, root: Path, regenerate: str) -> list[str]:
    """Current, committed, and built by the documented line."""
    problems = []
    commit = found.get("commit")
    history = record_evidence.has_history(root)
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        problems.append(f"'{commit}' is not a commit")
    elif history and not known(root, commit):
        problems.append(f"commit {commit[:12]} is not known here")
        history = False
    keys = ("source", "source sha256", "build line", "build line used")
    columns = [found.fields.get(key, []) for key in keys]
    if len({len(column) for column in columns}) != 1 or not columns[0]:
        return [*problems, f"there must be as many of each of: {', '.join(keys)}"]
    for path, digest, build, used in zip(*columns):
        file = root / path
        if not file.is_file():
            problems.append(f"{path} is not there any more")
            continue
        if evidence.sha256(file.read_bytes()) != digest:
            drawn = found.path.with_suffix(".svg").is_file()
            problems.append(
                f"is stale: {path} has changed since. Renew it where there is a GPU: git rm "
                f"{found.path.relative_to(root).with_suffix('.*')} && {regenerate}"
                + (" && python3 tools/plot_evidence.py" if drawn else ""))
        elif course.parse_header(file)["build"] != build:
            problems.append(f"{path} is not built by the recorded line")
        card = record_evidence.line_for_card(build, found.get("compute capability"))
        if not used.startswith(card) or (found.get("kind") == "run" and used != card):
            problems.append(f"{path} was built by another line than the documented one: {used}")
        if history and re.fullmatch(r"[0-9a-f]{40}", commit) and not shallow(root):
            try:
                held = record_evidence.capture_bytes(
                    ["git", "-C", str(root), "cat-file", "blob", f"{commit}:{path}"])
            except EvidenceError:
                held = b""
            if evidence.sha256(held) != digest:
                problems.append(f"commit {commit[:12]} does not hold the recorded {path}: it was "
                                "not committed when it ran")
    return problems


def shallow(root: Path) -> bool:
    return record_evidence.capture(["git", "-C", str(root), "rev-parse", "--is-shallow-repository"],
                                   "git").strip() != "false"


def known(root: Path, commit: str) -> bool:
    """Whether history has the commit. A shallow copy cannot tell, and is given the doubt."""
    try:
        record_evidence.capture(["git", "-C", str(root), "cat-file", "-e", f"{commit}^{{commit}}"],
                                "git")
        return True
    except EvidenceError:
        return shallow(root)


def check_name(found: Evidence, root: Path) -> list[str]:
    match = evidence.NAME.fullmatch(found.path.name)
    if not match:
        return ["its name is not run-YYYY-MM-DD-<gpu>-<name>.txt"]
    kind, source = found.get("kind"), Path(found.fields["source"][0])
    name = {"run": source.stem, "counters": f"{source.stem}-counters",
            "sanitizer": "compute_sanitizer"}.get(kind)
    chapter = "common" if kind == "sanitizer" else source.parent.as_posix()
    wanted = (f"{chapter}/evidence/run-{found.get('date')[:10]}-"
              f"{evidence.gpu_slug(found.get('gpu'))}-{name}.txt")
    if found.path.relative_to(root).as_posix() != wanted:
        return [f"its name does not say what its header says; that would be {wanted}"]
    return []


def check_run(found: Evidence, root: Path) -> list[str]:
    """What holds for a run of a lesson and for nothing else."""
    problems = []
    [lesson] = course.find(found.get("source"), root)
    transcript = root / lesson.transcript
    if not transcript.is_file():
        return [f"there is no transcript {lesson.transcript} any more"]
    differences, _ = check_transcript.match(course.read_text(transcript), found.stdout)
    problems += [f"does not agree with {lesson.transcript}: {line}" for line in differences[:8]]
    runs = found.integer("runs")
    if runs < LEAST_RUNS.get(lesson.stem, 1):
        problems.append(f"{runs} runs are too few; {LEAST_RUNS[lesson.stem]} are needed")
    if lesson.stderr and len(found.stderr) != runs:
        problems.append(f"has stderr of {len(found.stderr)} runs, and {runs} were made")
    for text in found.stderr:
        problems += check_transcript.stderr_problems(text, lesson.stderr, cpu_runtime=False)
        if found.get("gpu") not in text:
            problems.append(f"stderr does not name {found.get('gpu')}: {text.strip()}")
    return problems


def check_sanitizer(found: Evidence, root: Path) -> list[str]:
    problems = []
    for lesson in course.lessons(root):
        if lesson.language != "cuda":
            continue
        row = re.search(rf"^{re.escape(lesson.path.as_posix())} +(.*)$", found.stdout, re.MULTILINE)
        if not row or row[1].split()[:4] != ["clean"] * 4:
            problems.append(f"{lesson.path} is not clean under all four tools")
    return problems


def check_file(path: Path, root: Path = course.ROOT) -> list[str]:
    """Every problem of one file, one line each."""
    try:
        found = evidence.parse(path)
        kind = found.get("kind")
        for key in evidence.COMMON_KEYS + (evidence.RUN_KEYS if kind == "run" else ()):
            if key not in found.fields:
                return [f"its header has no '# {key}:'"]
        problems = check_name(found, root)
        if evidence.sha256(found.body.encode()) != found.get("body sha256"):
            problems.append("its output was changed after it was recorded")
        if found.get("compute capability") == "0.0" or re.search(
                r"cuda_on_cpu: |CPU \(\d+ workers?\)", found.get("gpu") + found.body):
            problems.append("it ran on a CPU")
        regenerate = regeneration(found)
        if found.get("regenerate") != regenerate:
            problems.append(f"the command that makes it again is not '{regenerate}'")
        problems += check_sources(found, root, regenerate)
        rules = RULES.get(evidence.NAME.sub(r"\3", path.name), Rules())
        if kind == "run":
            problems += check_run(found, root)
        elif kind == "sanitizer":
            problems += check_sanitizer(found, root)
        elif kind != "counters":
            problems.append(f"'{kind}' is no kind of evidence")
        problems += check_possible(found, rules) + check_derived(found, rules)
        return problems + (rules.extra(found) if rules.extra else [])
    except (EvidenceError, course.CourseError, check_transcript.TranscriptError) as error:
        return [str(error).removeprefix(f"{path}: ")]


def regeneration(found: Evidence) -> str:
    """The command that makes such a file again."""
    source = found.fields["source"][0]
    if found.get("kind") == "sanitizer":
        return "python3 tools/compute_sanitizer.py --record"
    if found.get("kind") == "counters":
        return f"python3 tools/record_counters.py {source}"
    runs = found.integer("runs")
    usual = record_evidence.SEVERAL_RUNS.get(Path(source).stem, 1)
    return f"python3 tools/record_evidence.py {source}" + (f" --runs {runs}" if runs != usual
                                                           else "")


def missing(root: Path, required: tuple[str, ...]) -> list[str]:
    """What is required and not there, each with the command that makes it."""
    there = {match[3] for path in evidence.files(root)
             if (match := evidence.NAME.fullmatch(path.name))}
    problems = []
    for name in required:
        if name in there:
            continue
        stem, _, what = name.partition("-")
        if name == "compute_sanitizer":
            command = "python3 tools/compute_sanitizer.py --record"
        elif what:
            command = f"python3 tools/record_counters.py {stem}"
        else:
            command = f"python3 tools/record_evidence.py {stem}"
        problems.append(f"there is no evidence of {name}; make it where there is a GPU: {command}")
    return problems


def strangers(root: Path) -> list[str]:
    """Files beside the evidence that are neither evidence nor a plot of it."""
    texts = {path.with_suffix("") for path in evidence.files(root)}
    return [f"{path.relative_to(root)} is neither evidence nor a plot of it"
            for path in sorted(root.glob("*/evidence/*"))
            if path.suffix not in (".txt", ".svg", ".png") or path.with_suffix("") not in texts]


def main(argv: list[str] | None = None, root: Path = course.ROOT,
         required: tuple[str, ...] = REQUIRED) -> int:
    parser = course.Parser(__doc__)
    parser.add_argument("file", nargs="*", type=Path, help="default: all, and what is required")
    options = parser.parse_args(argv)
    try:
        paths = [path.resolve() for path in options.file] or evidence.files(root)
    except (OSError, RuntimeError) as error:  # A loop of links.
        print(f"check_evidence.py: {error}", file=sys.stderr)
        return 2
    for path in paths:
        if not path.is_relative_to(root) or not path.is_file():
            print(f"check_evidence.py: there is no {path} in this repository", file=sys.stderr)
            return 2
    problems = [] if options.file else missing(root, required) + strangers(root)
    for path in paths:
        problems += [f"{path.relative_to(root)}: {problem}" for problem in check_file(path, root)]
    for problem in problems:
        print(problem)
    print(f"{len(paths)} files of evidence: " + (f"{len(problems)} problems" if problems
                                                 else "all well"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
