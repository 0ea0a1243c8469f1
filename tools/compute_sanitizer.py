#!/usr/bin/env python3
"""Run every .cu lesson under the four tools of compute-sanitizer. An error that one reports fails.

    python3 tools/compute_sanitizer.py                    all .cu lessons, all four tools
    python3 tools/compute_sanitizer.py 20 histogram       only these lessons
    python3 tools/compute_sanitizer.py --tool racecheck   only this tool
    python3 tools/compute_sanitizer.py --summary FILE     write the table to FILE as well
    python3 tools/compute_sanitizer.py --record           make the table evidence: all lessons, all
                                                          tools, committed sources, --commit and
                                                          --out as in record_evidence.py

First each tool has to find a fault that was planted for it, and to find nothing in a kernel
without one (tools/planted_faults.cu). Clean is not proof: racecheck sees shared memory only, and
takes no offense at a missing barrier where the accesses are atomic.

Exit status: 0 all clean, 1 something was found, 2 wrong use, 77 no GPU or no compute-sanitizer.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools import check_transcript, course, evidence, record_evidence  # noqa: E402
from tools.evidence import EvidenceError  # noqa: E402

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
PLANTED = {"memcheck": "a write behind the end of an array",
           "racecheck": "a barrier that is missing between warps",
           "initcheck": "a read of memory that nobody wrote",
           "synccheck": "a barrier that half a warp never reaches"}
FOUND = 86  # the exit status that says that a tool found something
TIMEOUT = 180.0

# The tools slow a kernel down a hundredfold. A lesson that works on much data takes less of it
# here; where a lesson is not named, it takes what its line in CMakeLists.txt gives a CPU.
SIZES: dict[str, tuple[str, ...]] = {
    "90_race_on_hardware": ("RACE_LAUNCHES=2", "RACE_MAX_N=1048576"),
    "91_stable_counting_sort": ("SORT_MAX_N=8192", "SORT_RUNS=1"),
    "92_counting_sort_at_speed": ("SORT_KEYS=65536u", "SORT_RUNS=1"),
    "histogram": ("HISTOGRAM_BYTES=1049187",),
    "histogram_at_the_floor": ("HISTOGRAM_SMALL_BYTES=66147", "HISTOGRAM_LARGE_BYTES=400003",
                               "HISTOGRAM_BLOCKS=3", "HISTOGRAM_RUNS=1", "HISTOGRAM_CALLS=1"),
}


def sizes(lesson: course.Lesson) -> tuple[str, ...]:
    return SIZES.get(lesson.stem, lesson.cpu_defines)


def find_sanitizer() -> str | None:
    """compute-sanitizer from PATH, or from beside nvcc."""
    found = shutil.which("compute-sanitizer")
    nvcc = shutil.which("nvcc")
    if not found and nvcc:
        found = shutil.which("compute-sanitizer", path=str(Path(nvcc).resolve().parent))
    return found


def verdict(tool: str, outcome: check_transcript.Outcome) -> str:
    """'clean', or what is wrong in one line. Only a summary that says 0 is clean."""
    text = (outcome.stdout + outcome.stderr).decode("utf-8", "replace")
    if outcome.stopped:
        return f"the program {outcome.stopped}"
    summaries = re.findall(r"^=+ (?:\w+ )?SUMMARY: (\d+) (?:error|hazard).*$", text, re.MULTILINE)
    reports = [line.lstrip("= ") for line in text.splitlines() if re.match(r"=+ \S", line)
               and "COMPUTE-SANITIZER" not in line and "SUMMARY" not in line]
    if not summaries:
        return f"{tool} gave no summary: {(reports or ['it printed nothing'])[0]}"
    if outcome.status == FOUND or any(int(count) for count in summaries):
        return f"{tool} found {max(map(int, summaries))}: {(reports or ['?'])[0]}"
    if outcome.status != 0:
        last = text.strip().splitlines()[-1]
        return f"the program ended with status {outcome.status}: {last}"
    return "clean"


def run_tool(sanitizer: str, tool: str, command: list[str], work: Path) -> str:
    arguments = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), *command]
    return verdict(tool, check_transcript.run_program(arguments, TIMEOUT, cwd=str(work)))


def build(lesson: course.Lesson, source: bytes, capability: str, top: Path) -> tuple[Path, str]:
    """Build a lesson in a directory of its own: that directory, and the line that was used."""
    work = top / lesson.stem
    work.mkdir()
    line = record_evidence.line_for_card(lesson.build, capability) + " -lineinfo"
    line += "".join(f" -D{shlex.quote(define)}" for define in sizes(lesson))
    record_evidence.build(lesson, source, line, work)
    return work, line


def self_test(sanitizer: str, tools: list[str], capability: str, work: Path) -> list[str]:
    """Lines that say what each tool found. Raises EvidenceError when one does not see its fault."""
    source = Path(__file__).resolve().with_name("planted_faults.cu")
    (work / source.name).write_bytes(source.read_bytes())
    record_evidence.capture(
        shlex.split(record_evidence.line_for_card("nvcc -o planted_faults planted_faults.cu",
                                                  capability)), "building planted_faults.cu", work)
    lines = []
    for tool in tools:
        planted = run_tool(sanitizer, tool, ["./planted_faults", tool], work)
        if not planted.startswith(f"{tool} found "):
            raise EvidenceError(f"{tool} does not find {PLANTED[tool]}, so what it calls clean "
                                f"means nothing; it said: {planted}")
        clean = run_tool(sanitizer, tool, ["./planted_faults", "clean"], work)
        if clean != "clean":
            raise EvidenceError(f"a kernel without a fault is not clean: {clean}")
        lines.append(f"{tool:<10} finds {PLANTED[tool]}, and nothing where there is no fault")
    return lines


def check_lessons(lessons: list[course.Lesson], sources: dict[Path, bytes], sanitizer: str,
                  tools: list[str], capability: str, jobs: int,
                  top: Path) -> tuple[list[str], dict[Path, str], list[str]]:
    """The table's lines, the build lines used, and what was found."""
    width = max(len(lesson.path.as_posix()) for lesson in lessons)
    lines = ["  ".join([f"{'lesson':<{width}}", *(f"{tool:<9}" for tool in tools), "built with"])]
    found, used = [], {}
    with ThreadPoolExecutor(jobs) as pool:
        builds = {lesson.path: pool.submit(build, lesson, sources[lesson.path], capability, top)
                  for lesson in lessons}
        runs = {}
        for lesson in lessons:
            work, used[lesson.path] = builds[lesson.path].result()
            runs[lesson.path] = [pool.submit(run_tool, sanitizer, tool, shlex.split(lesson.run),
                                             work) for tool in tools]
        for lesson in lessons:
            results = [run.result() for run in runs[lesson.path]]
            for result in results:
                if result != "clean":
                    found.append(f"{lesson.path}: {result}")
            cells = ["clean" if result == "clean" else "FOUND" for result in results]
            lines.append("  ".join([f"{lesson.path.as_posix():<{width}}",
                                    *(f"{cell:<9}" for cell in cells),
                                    " ".join(sizes(lesson)) or "the documented size"]))
            print(lines[-1], flush=True)
    return lines, used, found


def sanitize(options: argparse.Namespace, root: Path) -> int:
    everything = [lesson for lesson in course.lessons(root) if lesson.language == "cuda"]
    chosen = [lesson for text in options.lesson for lesson in course.find(text, root)
              if lesson.language == "cuda"] if options.lesson else everything
    if not chosen:
        raise course.CourseError("no .cu lesson is selected")
    tools = options.tool or list(TOOLS)
    sources = {lesson.path: lesson.file.read_bytes() for lesson in chosen}
    commit = None
    if options.record:
        if options.lesson or options.tool:
            raise course.CourseError("--record is for all lessons and all tools")
        commit = record_evidence.committed(
            root, {path.as_posix(): data for path, data in sources.items()}, options.commit)
    for program in ("nvcc", "compute-sanitizer"):
        if not (shutil.which("nvcc") if program == "nvcc" else find_sanitizer()):
            print(f"compute_sanitizer.py: skipped: there is no {program} here; the CUDA toolkit "
                  "has it", file=sys.stderr)
            return 77
    sanitizer = find_sanitizer()
    with tempfile.TemporaryDirectory(prefix="sanitizer-") as name:
        work = Path(name)
        machine = record_evidence.probe(work)
        target = root / "common/evidence" / record_evidence.file_name(machine, "compute_sanitizer")
        if options.record:
            record_evidence.refuse_existing(target, options.out)
        version = re.search(r"\d{4}\.\d+[\d.]*", record_evidence.capture(
            [sanitizer, "--version"], "compute-sanitizer"))
        lines = [f"compute-sanitizer {version[0] if version else 'of unknown version'}", ""]
        lines += self_test(sanitizer, tools, machine["compute capability"], work)
        print("\n".join(lines), flush=True)
        table, used, found = check_lessons(chosen, sources, sanitizer, tools,
                                           machine["compute capability"], options.jobs, work)
    lines += ["", *table]
    text = "\n".join(lines) + "\n"
    if options.summary:
        course.write_atomically(options.summary, text + "".join(f"{line}\n" for line in found))
    for line in found:
        print(line, file=sys.stderr)
    if found:
        return 1
    if options.record:
        fields = record_evidence.header(
            "sanitizer", [(lesson, sources[lesson.path], used[lesson.path]) for lesson in chosen],
            commit, machine, "python3 tools/compute_sanitizer.py --record")
        record_evidence.publish(target, evidence.render(fields, text), options.out)
        print(target.relative_to(root))
    print(f"{len(chosen)} lessons, {len(tools)} tools: clean on {machine['gpu']}")
    return 0


def main(argv: list[str] | None = None, root: Path = course.ROOT) -> int:
    parser = course.Parser(__doc__)
    parser.add_argument("lesson", nargs="*", help="id, stem or path; default: all .cu lessons")
    parser.add_argument("--tool", action="append", choices=TOOLS, help="only this tool")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1),
                        help="how many builds or tools at a time")
    parser.add_argument("--summary", metavar="FILE", type=Path, help="write the table to FILE too")
    parser.add_argument("--record", action="store_true", help="make the table evidence")
    parser.add_argument("--commit", metavar="ID", help="the commit, where git cannot tell it")
    parser.add_argument("--out", metavar="DIR", type=Path, help="leave a copy of the evidence")
    options = parser.parse_args(argv)
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    try:
        return sanitize(options, root)
    except course.CourseError as error:
        print(f"compute_sanitizer.py: {error}", file=sys.stderr)
        return 2
    except record_evidence.NoGpu as error:
        print(f"compute_sanitizer.py: skipped: {error}", file=sys.stderr)
        return 77
    except EvidenceError as error:
        print(f"compute_sanitizer.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
