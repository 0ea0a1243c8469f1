#!/usr/bin/env python3
"""Record one verified run of a lesson on the GPU at hand, as evidence.

    python3 tools/record_evidence.py LESSON                    id, stem or path of a .cu lesson
    python3 tools/record_evidence.py LESSON --runs 20          the same program 20 times
    python3 tools/record_evidence.py LESSON --commit ID        where there is no git history
    python3 tools/record_evidence.py LESSON --out DIR          leave a copy in DIR as well

Builds the committed source by the Build line of its header, with the machine code that the card
needs added to it, runs it, checks stdout value by value against its transcript and stderr against
the lines that the lesson announces, and writes <chapter>/evidence/run-YYYY-MM-DD-<gpu>-<stem>.txt.

Refuses: a source or transcript that is not committed, no GPU, kernels that ran on a CPU, a run
that failed or was stopped, a check that failed, a file that exists. Killed at any moment it leaves
no file. With --runs, stdout must be the same every time, and each run's stderr is kept.

With --commit and no history nobody can tell here whether the source is the committed one; then
tools/check_evidence.py tells, where the history is.

Exit status: 0 recorded, 1 refused (one line on stderr says why), 2 wrong use, 77 no GPU.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools import check_transcript, course, evidence  # noqa: E402
from tools.evidence import EvidenceError  # noqa: E402

TIMEOUT = 600.0  # seconds for one build or one run
SEVERAL_RUNS = {  # What these lessons show on the device could differ from run to run.
    "20_privatized_histogram": 20,
    "21_histogram_to_counting_sort": 20,
}


class NoGpu(EvidenceError):
    """There is no GPU to record on."""


def capture(command: list[str], what: str, cwd: Path | None = None) -> str:
    """What a command prints. Raises EvidenceError when it is missing or fails."""
    try:
        done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=TIMEOUT, check=False)
    except FileNotFoundError:
        raise EvidenceError(f"{what}: there is no program '{command[0]}'") from None
    except subprocess.TimeoutExpired:
        raise EvidenceError(f"{what}: took more than {TIMEOUT:.0f} s") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise EvidenceError(f"{what}: failed with status {done.returncode}"
                            + (f": {said[0]}" if said else ""))
    return done.stdout.decode("utf-8", "replace")


# Is it the committed source?


def has_history(root: Path) -> bool:
    """Whether `root` is the top of a git working tree that has a commit, and git can read it."""
    try:
        top = capture(["git", "-C", str(root), "rev-parse", "--show-toplevel"], "git").strip()
        capture(["git", "-C", str(root), "rev-parse", "--verify", "--quiet", "HEAD^{commit}"],
                "git")
    except EvidenceError:
        return False
    return Path(top).resolve() == root.resolve()


def committed(root: Path, contents: dict[str, bytes], commit: str | None) -> str:
    """The commit that holds exactly these contents. Raises EvidenceError if it does not."""
    if commit is not None and not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise EvidenceError("--commit needs all 40 hexadecimal digits of the commit")
    if not has_history(root):
        if commit is None:
            raise EvidenceError("there is no git history here; name the commit with --commit")
        return commit
    git = ["git", "-C", str(root)]
    commit = commit or capture([*git, "rev-parse", "HEAD"], "git").strip()
    for path, data in contents.items():
        try:
            held = capture_bytes([*git, "cat-file", "blob", f"{commit}:{path}"])
        except EvidenceError:
            raise EvidenceError(f"{path} is not in commit {commit[:12]}; commit it first") from None
        if held != data:
            raise EvidenceError(f"{path} differs from commit {commit[:12]}; commit it first")
    return commit


def capture_bytes(command: list[str]) -> bytes:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        raise EvidenceError("git failed")
    return done.stdout


# The machine.


def first_line(text: str) -> str:
    return text.strip().splitlines()[0].strip() if text.strip() else ""


def probe(work: Path) -> dict[str, str]:
    """What the header says of the machine, from a small program that asks the GPU."""
    source = Path(__file__).resolve().with_name("gpu_probe.cu")
    (work / source.name).write_bytes(source.read_bytes())
    capture(["nvcc", "-o", "gpu_probe", source.name], "building the probe of the GPU", work)
    done = subprocess.run(["./gpu_probe"], cwd=work, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        raise NoGpu(first_line(done.stderr) or "no GPU")
    if done.returncode:
        raise EvidenceError(f"the GPU cannot be asked: {first_line(done.stderr)}")
    machine = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    if machine["compute capability"] == "0.0" or machine["gpu"].startswith("CPU"):
        raise NoGpu(f"'{machine['gpu']}' is not a GPU; evidence is for runs on a GPU")
    ask_driver(machine)
    version = re.search(r"release \S+, (V\S+)", capture(["nvcc", "--version"], "nvcc"))
    machine["nvcc"] = version[1] if version else "unknown"
    host = os.environ.get("NVCC_CCBIN", "g++")
    machine["host compiler"] = first_line(capture([host, "--version"], "the host compiler"))
    return machine


def ask_driver(machine: dict[str, str]) -> None:
    """Add what only nvidia-smi says; where it is missing, the attributes have to do."""
    try:
        version, clock = capture(
            ["nvidia-smi", "--id=0", "--query-gpu=driver_version,clocks.max.memory",
             "--format=csv,noheader,nounits"], "nvidia-smi").strip().split(",")
    except (EvidenceError, ValueError):
        return
    machine["driver"] = f"{version.strip()}, {machine['driver']}"
    if machine["memory clock kHz"] == "0" and clock.strip().isdigit():
        machine["memory clock kHz"] = f"{int(clock) * 1000} (nvidia-smi; the attribute says 0)"


def line_for_card(build: str, capability: str) -> str:
    """The documented line, and machine code for the card at hand where that is another one."""
    number = capability.replace(".", "")
    if re.search(rf"-arch[= ]sm_{number}\b", build):
        return build
    return f"{build} -gencode arch=compute_{number},code=sm_{number}"


def build(lesson: course.Lesson, source: bytes, line: str, work: Path) -> Path:
    """Build a copy of the source in `work`; returns the program."""
    (work / lesson.path.name).write_bytes(source)
    capture(shlex.split(line), f"building {lesson.path}", work)
    program = work / lesson.program
    if not program.is_file():
        raise EvidenceError(f"building {lesson.path}: left no {lesson.program}")
    return program


def header(kind: str, sources: list[tuple[course.Lesson, bytes, str]], commit: str,
           machine: dict[str, str], regenerate: str) -> list[tuple[str, str]]:
    """The fields that every kind of evidence has; sources are (lesson, content, line used)."""
    fields = [("kind", kind)]
    for lesson, source, line in sources:
        fields += [("source", lesson.path.as_posix()), ("source sha256", evidence.sha256(source)),
                   ("build line", lesson.build), ("build line used", line)]
    fields += [("commit", commit)]
    fields += [(key, machine[key]) for key in (
        "gpu", "compute capability", "SM count", "L2 bytes", "ECC", "SM clock kHz",
        "memory clock kHz", "memory bus bits", "memory bytes", "driver", "runtime", "nvcc",
        "host compiler")]
    now = datetime.now(timezone.utc)
    return fields + [("date", now.strftime("%Y-%m-%d %H:%M UTC")), ("regenerate", regenerate)]


def file_name(machine: dict[str, str], what: str) -> str:
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return f"run-{date}-{evidence.gpu_slug(machine['gpu'])}-{what}.txt"


# The run.


def run_once(lesson: course.Lesson, expected: str, work: Path, gpu: str) -> tuple[str, str, int]:
    """One run, checked: stdout, stderr and how many values behind masks were checked."""
    outcome = check_transcript.run_program(shlex.split(lesson.run), TIMEOUT, cwd=str(work))
    texts = [stream.decode("utf-8", "replace") for stream in (outcome.stdout, outcome.stderr)]
    if re.search(r"^cuda_on_cpu: |CPU \(\d+ workers?\)", "\n".join(texts), re.MULTILINE):
        raise EvidenceError("the kernels ran on the CPU; evidence is for runs on a GPU")
    verdict = check_transcript.judge(outcome, expected, lesson.stderr, cuda=True,
                                     require_gpu=True, cpu_runtime=False)
    if verdict.status != check_transcript.PASSED:
        raise EvidenceError(f"the run of {lesson.path} did not pass its check: "
                            + "; ".join(verdict.lines[:12]))
    if gpu not in verdict.kernels:
        raise EvidenceError(f"{lesson.path} says its kernels ran on {verdict.kernels}, "
                            f"and the GPU at hand is {gpu}")
    return texts[0], texts[1], sum(len(values) for values in verdict.values.values())


def record(lesson: course.Lesson, root: Path, runs: int, commit: str | None,
           out: Path | None) -> Path:
    if lesson.language != "cuda":
        raise EvidenceError(f"{lesson.path} has no kernels; its transcript is all there is to know")
    source = lesson.file.read_bytes()
    transcript = root / lesson.transcript
    if not transcript.is_file():
        raise EvidenceError(f"there is no transcript {lesson.transcript} to check the run against")
    expected = transcript.read_bytes()
    commit = committed(root, {lesson.path.as_posix(): source,
                              lesson.transcript.as_posix(): expected}, commit)
    with tempfile.TemporaryDirectory(prefix="evidence-") as name:
        work = Path(name)
        machine = probe(work)
        target = root / lesson.chapter / "evidence" / file_name(machine, lesson.stem)
        refuse_existing(target, out)
        line = line_for_card(lesson.build, machine["compute capability"])
        build(lesson, source, line, work)
        results = []
        for number in range(runs):
            print(f"{lesson.path}: run {number + 1} of {runs}", file=sys.stderr)
            results.append(run_once(lesson, expected.decode("utf-8"), work, machine["gpu"]))
    stdout, _, values = results[0]
    if any(result[0] != stdout for result in results):
        raise EvidenceError("stdout differs from run to run; --runs is for lessons that print "
                            "what depends on the machine on stderr only")
    regenerate = f"python3 tools/record_evidence.py {lesson.path.as_posix()}"
    if runs != SEVERAL_RUNS.get(lesson.stem, 1):
        regenerate += f" --runs {runs}"
    fields = header("run", [(lesson, source, line)], commit, machine, regenerate)
    fields += [("run line", lesson.run), ("runs", str(runs)),
               ("checked against", f"{lesson.transcript.as_posix()}, {values} masked values, "
                                   f"{'every run' if runs > 1 else 'passed'}")]
    publish(target, evidence.render(
        fields, stdout, [result[1] for result in results] if lesson.stderr else None), out)
    return target


def refuse_existing(target: Path, out: Path | None) -> None:
    """Refuse what could not be written in the end; best before the run, which takes time."""
    if out:
        out.mkdir(parents=True, exist_ok=True)
    for path in (target, *([out / target.name] if out else [])):
        if path.exists():
            raise EvidenceError(f"{path} exists; evidence is never written over")


def publish(target: Path, text: str, out: Path | None) -> None:
    """Write the complete text, and a copy where one is wanted."""
    evidence.parse(target, text)  # What cannot be read back is not published.
    refuse_existing(target, out)
    evidence.write_new(target, text)
    if out:
        evidence.write_new(out / target.name, text)


def main(argv: list[str] | None = None, root: Path = course.ROOT) -> int:
    parser = course.Parser(__doc__)
    parser.add_argument("lesson", metavar="LESSON", help="id, stem or path of one .cu lesson")
    parser.add_argument("--runs", type=int, metavar="N",
                        help="run N times (default: 1, or what the lesson needs)")
    parser.add_argument("--commit", metavar="ID", help="the commit, where git cannot tell it")
    parser.add_argument("--out", metavar="DIR", type=Path, help="also leave a copy in DIR")
    options = parser.parse_args(argv)
    if options.runs is not None and options.runs < 1:
        parser.error("--runs must be at least 1")
    try:
        chosen = course.find(options.lesson, root)
        if len(chosen) != 1:
            raise course.CourseError(f"'{options.lesson}' selects {len(chosen)} lessons; name one")
        runs = options.runs or SEVERAL_RUNS.get(chosen[0].stem, 1)
        target = record(chosen[0], root, runs, options.commit, options.out)
    except course.CourseError as error:
        print(f"record_evidence.py: {error}", file=sys.stderr)
        return 2
    except NoGpu as error:
        print(f"record_evidence.py: refused: {error}", file=sys.stderr)
        return 77
    except (EvidenceError, check_transcript.TranscriptError) as error:
        print(f"record_evidence.py: refused: {error}", file=sys.stderr)
        return 1
    print(target.relative_to(root))
    return 0


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
