#!/usr/bin/env python3
"""Record what the profiler counts in a lesson's kernels, as evidence: conflicts in shared memory.

    python3 tools/record_counters.py [LESSON]     default: the lesson of day 29 that is about them
    python3 tools/record_counters.py --commit ID --out DIR      as in record_evidence.py

Builds the committed source, runs it under ncu (clocks as they are), and writes
<chapter>/evidence/run-YYYY-MM-DD-<gpu>-<stem>-counters.txt: for each kernel that uses atomics in
shared memory and each input, the warp instructions, the wavefronts that they took and the bank
conflicts; and how many ATOMS.POPC.INC and other ATOMS instructions its machine code has. Of lesson
92 all accesses to shared memory are counted, not only atomics.

The lesson must pass its own check under the profiler. A kernel's launches on the largest input are
told from the others by their number of instructions; they come input by input, equally many each.
Where that number depends on the input, they are the kernel's last launches, one for each input.

Exit status: 0 recorded, 1 refused (one line on stderr says why), 2 wrong use, 77 no GPU or no ncu.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools import check_transcript, course, evidence, record_evidence  # noqa: E402
from tools.evidence import EvidenceError  # noqa: E402

# What is counted, by the first of these names that the profiler knows for the card.
METRICS = {
    "instructions": ("smsp__inst_executed_op_shared_atom",
                     "smsp__sass_inst_executed_op_shared_atom", "smsp__inst_executed_op_shared"),
    "wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom",
                   "l1tex__data_pipe_lsu_wavefronts_mem_shared"),
    "conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom",
                  "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"),
}
ALL_ACCESSES = {
    "instructions": ("smsp__sass_inst_executed_op_shared", "smsp__inst_executed_op_shared"),
    "wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared",),
    "conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared",),
}
SAME = 0.02  # launches of one kernel on inputs of one size differ by less in their instructions
ALIKE = 0.10  # launches on one and the same input differ by less in their wavefronts


@dataclass(frozen=True)
class Plan:
    """How a lesson is profiled: its definitions, its inputs on the largest size in their order, the
    kernels (all without any), what is counted, and whether only each kernel's last launches count.
    """
    defines: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ("uniform bytes", "english text", "all one byte")
    kernels: tuple[str, ...] = ()
    metrics: dict[str, tuple[str, ...]] = field(default_factory=lambda: METRICS)
    last: bool = False


# A largest size that fits every card, and few launches.
PLANS = {
    "histogram_at_the_floor": Plan((
        "HISTOGRAM_SMALL_BYTES=1049187", "HISTOGRAM_LARGE_BYTES=67109475", "HISTOGRAM_RUNS=1",
        "HISTOGRAM_CALLS=1")),
    "92_counting_sort_at_speed": Plan(
        ("SORT_RUNS=1",), ("uniform bytes", "english text", "all one byte", "sorted", "two values"),
        ("countChunks", "sortChunks"), ALL_ACCESSES, last=True),
}


@dataclass
class Launch:
    kernel: str  # with template arguments
    counts: dict[str, float]


def find_ncu() -> str | None:
    """ncu from PATH, from beside nvcc, or from where its own installer puts it."""
    found = shutil.which("ncu")
    nvcc = shutil.which("nvcc")
    if not found and nvcc:
        found = shutil.which("ncu", path=str(Path(nvcc).resolve().parent))
    installed = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"))
    return found or (str(installed[-1]) if installed else None)


def choose_metrics(ncu: str, wanted: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """A name that this profiler knows for each thing to count."""
    listed = record_evidence.capture([ncu, "--query-metrics"], "ncu --query-metrics")
    known = set(re.findall(r"^\s*([a-z0-9]+__\w+)", listed, re.MULTILINE))
    chosen = {}
    for what, names in wanted.items():
        chosen[what] = next((f"{name}.sum" for name in names if name in known), "")
        if not chosen[what]:
            raise EvidenceError(f"ncu knows none of {', '.join(names)} for this card")
    return chosen


def parse_launches(text: str, metrics: dict[str, str]) -> list[Launch]:
    """The launches in a report that ncu wrote with --csv --page raw."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))
    launches = []
    for row in rows:
        if not (row.get("ID") or "").isdigit():  # The line of units below the names.
            continue
        counts = {}
        for what, metric in metrics.items():
            try:
                counts[what] = float((row.get(metric) or "").replace(",", ""))
            except ValueError:
                raise EvidenceError(f"ncu gives no {metric} for {row.get('Kernel Name')}: "
                                    f"'{row.get(metric)}'") from None
        launches.append(Launch(re.sub(r"^void |\(anonymous namespace\)::|<unnamed>::|\(.*$", "",
                                      row["Kernel Name"]), counts))
    if not launches:
        raise EvidenceError("ncu reports no launch")
    return launches


def per_input(launches: list[Launch], plan: Plan = Plan()) -> dict[str, list[Launch]]:
    """For each kernel with instructions of the kind that is counted, a launch on each input."""
    inputs, result = plan.inputs, {}
    for kernel in dict.fromkeys(launch.kernel for launch in launches):
        own = [launch for launch in launches if launch.kernel == kernel]
        most = max(launch.counts["instructions"] for launch in own)
        if most <= 0:
            continue
        full = own[-len(inputs):] if plan.last else [
            one for one in own if one.counts["instructions"] >= most * (1 - SAME)]
        if not full or len(full) % len(inputs):
            raise EvidenceError(f"{kernel} was launched {len(full)} times on the largest input, "
                                f"which is no multiple of {len(inputs)} inputs")
        each = len(full) // len(inputs)
        groups = [full[at * each:(at + 1) * each] for at in range(len(inputs))]
        for name, group in zip(inputs, groups):
            wavefronts = [one.counts["wavefronts"] for one in group]
            if max(wavefronts) > min(wavefronts) * (1 + ALIKE):
                raise EvidenceError(f"{kernel} on {name}: its {each} launches are not alike "
                                    f"({min(wavefronts):.0f} to {max(wavefronts):.0f} wavefronts), "
                                    "so they are not all on this input")
        result[kernel] = [group[0] for group in groups]
    if not result:
        raise EvidenceError("no kernel uses shared memory in the way that is counted")
    return result


def count_atoms(sass: str, capability: str, kernels: list[str]) -> dict[str, tuple[int, int]]:
    """ATOMS.POPC.INC and other ATOMS instructions of each kernel (all its instances together)."""
    counts = {kernel: (0, 0) for kernel in kernels}
    current, wanted = "", False
    for line in sass.splitlines():
        code = re.match(r"\s*code for sm_(\d+)", line)
        function = re.match(r"\s*Function : (\S+)", line)
        if code:
            wanted = code[1] == capability.replace(".", "")
        elif function:
            current = next((kernel for kernel in sorted(kernels, key=len, reverse=True)
                            if f"{len(kernel)}{kernel}" in function[1] or kernel == function[1]),
                           "")
        elif wanted and current and (atoms := re.search(r"\bATOMS(\.[A-Z0-9.]+)?", line)):
            increments, others = counts[current]
            if ".POPC.INC" in (atoms[1] or ""):
                counts[current] = (increments + 1, others)
            else:
                counts[current] = (increments, others + 1)
    return counts


def render(version: str, plan: Plan, metrics: dict[str, str], launches: dict[str, list[Launch]],
           atoms: dict[str, tuple[int, int]], capability: str) -> str:
    """The text that becomes evidence."""
    width = max(map(len, [*launches, *atoms, "kernel"]))
    size = " ".join(plan.defines or ["the documented sizes"])
    lines = [f"ncu {version}, one launch of each kernel on each input, built with {size}", ""]
    lines += [f"{what:<12} is {metric}" for what, metric in metrics.items()]
    lines += ["", f"{'kernel':<{width}}  {'input':<13}  {'instructions':>12}  {'wavefronts':>11}  "
                  f"{'conflicts':>11}  wavefronts per instruction"]
    for kernel, each in launches.items():
        for name, launch in zip(plan.inputs, each):
            instructions, wavefronts, conflicts = (launch.counts[what] for what in metrics)
            lines.append(f"{kernel:<{width}}  {name:<13}  {instructions:12.0f}  {wavefronts:11.0f}"
                         f"  {conflicts:11.0f}  {wavefronts / instructions:26.3f}")
    lines += ["", f"instructions in the machine code for sm_{capability.replace('.', '')}",
              f"{'kernel':<{width}}  ATOMS.POPC.INC  other ATOMS"]
    lines += [f"{kernel:<{width}}  {increments:14d}  {others:11d}"
              for kernel, (increments, others) in atoms.items()]
    return "\n".join(lines) + "\n"


def profile(lesson: course.Lesson, ncu: str, metrics: dict[str, str], kernels: list[str],
            work: Path, plan: Plan) -> list[Launch]:
    """Run the built lesson under ncu: its launches."""
    report = work / "report.csv"
    command = [ncu, "--clock-control", "none", "--csv", "--page", "raw",
               "--metrics", ",".join(metrics.values()), "--log-file", str(report),
               "--kernel-name", f"regex:^({'|'.join(kernels)})$", *shlex.split(lesson.run)]
    outcome = check_transcript.run_program(command, record_evidence.TIMEOUT, cwd=str(work))
    log = report.read_text(errors="replace") if report.is_file() else ""
    said = (outcome.stdout + outcome.stderr).decode("utf-8", "replace")
    if outcome.stopped or outcome.status != 0:
        errors = [line for line in (log + said).splitlines() if "==ERROR==" in line]
        raise EvidenceError(f"{lesson.path} under ncu ended with status {outcome.status} "
                            f"{outcome.stopped}: {(errors or said.splitlines() or ['?'])[-1]}")
    if re.search(r"CPU \(\d+ workers?\)|cuda_on_cpu: ", said):
        raise EvidenceError("the kernels ran on the CPU; evidence is for runs on a GPU")
    if plan.last:  # Then the lesson's last rows must be about these inputs, in this order.
        rows = re.findall(r"^ *\d+  (\S.*?)  +[\d.]+ ", said, re.MULTILINE)
        if tuple(rows[-len(plan.inputs):]) != plan.inputs:
            raise EvidenceError(f"the last rows of {lesson.path} are about "
                                f"{', '.join(rows[-len(plan.inputs):]) or 'nothing'}, not about "
                                f"{', '.join(plan.inputs)}")
    return parse_launches(log, metrics)


def record(lesson: course.Lesson, root: Path, ncu: str, options: argparse.Namespace) -> Path:
    plan = PLANS.get(lesson.stem, Plan())
    source = lesson.file.read_bytes()
    commit = record_evidence.committed(root, {lesson.path.as_posix(): source}, options.commit)
    kernels = re.findall(r"__global__[^;{]*?\b(\w+)\s*\((?!\s*\d)", re.sub(
        r"//[^\n]*|__launch_bounds__\([^)]*\)", "", source.decode("utf-8")))
    if not kernels:
        raise EvidenceError(f"{lesson.path} has no kernels")
    with tempfile.TemporaryDirectory(prefix="counters-") as name:
        work = Path(name)
        machine = record_evidence.probe(work)
        target = root / lesson.chapter / "evidence" / record_evidence.file_name(
            machine, f"{lesson.stem}-counters")
        record_evidence.refuse_existing(target, options.out)
        line = record_evidence.line_for_card(lesson.build, machine["compute capability"])
        line += "".join(f" -D{define}" for define in plan.defines)
        program = record_evidence.build(lesson, source, line, work)
        metrics = choose_metrics(ncu, plan.metrics)
        launches = profile(lesson, ncu, metrics, list(plan.kernels or dict.fromkeys(kernels)), work,
                           plan)
        counted = per_input(launches, plan)
        named = list(dict.fromkeys(re.sub(r"<.*", "", kernel) for kernel in counted))
        sass = record_evidence.capture(["cuobjdump", "--dump-sass", str(program)], "cuobjdump")
    version = re.search(r"Version (\S+)", record_evidence.capture([ncu, "--version"], "ncu"))
    text = render(version[1] if version else "of unknown version", plan, metrics, counted,
                  count_atoms(sass, machine["compute capability"], named),
                  machine["compute capability"])
    fields = record_evidence.header(
        "counters", [(lesson, source, line)], commit, machine,
        f"python3 tools/record_counters.py {lesson.path.as_posix()}")
    record_evidence.publish(target, evidence.render(fields, text), options.out)
    return target


def main(argv: list[str] | None = None, root: Path = course.ROOT) -> int:
    parser = course.Parser(__doc__)
    parser.add_argument("lesson", nargs="?", default="histogram_at_the_floor",
                        help="id, stem or path of one .cu lesson")
    parser.add_argument("--commit", metavar="ID", help="the commit, where git cannot tell it")
    parser.add_argument("--out", metavar="DIR", type=Path, help="also leave a copy in DIR")
    options = parser.parse_args(argv)
    try:
        chosen = course.find(options.lesson, root)
        if len(chosen) != 1:
            raise course.CourseError(f"'{options.lesson}' selects {len(chosen)} lessons; name one")
        for program in ("nvcc", "ncu", "cuobjdump"):
            if not (find_ncu() if program == "ncu" else shutil.which(program)):
                print(f"record_counters.py: skipped: there is no {program} here; the CUDA toolkit "
                      "has it", file=sys.stderr)
                return 77
        target = record(chosen[0], root, find_ncu(), options)
    except course.CourseError as error:
        print(f"record_counters.py: {error}", file=sys.stderr)
        return 2
    except record_evidence.NoGpu as error:
        print(f"record_counters.py: refused: {error}", file=sys.stderr)
        return 77
    except EvidenceError as error:
        print(f"record_counters.py: refused: {error}", file=sys.stderr)
        return 1
    print(target.relative_to(root))
    return 0


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
