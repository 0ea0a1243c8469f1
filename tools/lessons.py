#!/usr/bin/env python3
"""Show, run and test the lessons.

    python3 tools/lessons.py list               the lessons in reading order
    python3 tools/lessons.py run                build and run all of them
    python3 tools/lessons.py run 19 20          only these: id, file, or chapter (7, 29)
    python3 tools/lessons.py test               everything that continuous integration checks

A .cu lesson is built with nvcc and runs on the GPU where there are both; elsewhere its kernels
run on the CPU. `test` ends with one line that counts passed, failed and skipped and says where
kernels ran. What is built lies in build/, or in a temporary directory where that cannot be
written.

Exit status: 0 all well, 1 something failed, 2 wrong use or something is not installed.
"""

import sys

if sys.version_info < (3, 10):  # Nothing above may need more than Python 3.6, nor any syntax below.
    sys.exit("lessons.py: needs Python 3.10 or newer, and this is {}.{}; install the Debian package"
             " python3 of a newer release".format(*sys.version_info[:2]))

import argparse
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.dont_write_bytecode = True
if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from tools import check_transcript, course  # noqa: E402
from tools.course import ROOT, CourseError, Lesson  # noqa: E402

WIDTH = 80
MODULES_AT_A_TIME = 2
SLOW_MODULES = ("cuda_on_cpu", "documented_lines", "kernels", "bad_input", "compile_matrix",
                "faults", "lessons")
MODULE_SECONDS = 600
LONG_SECONDS = 7200
BUILD_SECONDS = 1800
DETAIL_LINES = 40  # of each failure
CPU_TOOL = ROOT / "tools" / "cuda_on_cpu.py"
SANITIZER_TOOL = ROOT / "tools" / "compute_sanitizer.py"

# Asks the driver itself, in a process of its own, so that a broken driver cannot take us along.
GPU_PROBE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count, device, major, minor = (ctypes.c_int() for _ in range(4))
name = ctypes.create_string_buffer(256)
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDeviceGetName(name, 256, device) == 0
assert cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device) == 0
assert cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device) == 0
print(major.value * 10 + minor.value, name.value.decode())
"""


def note(text: str) -> None:
    """Progress, for people; never among the results."""
    print(text, file=sys.stderr, flush=True)


def say(text: str = "") -> None:
    print(text, flush=True)


# ---- children ----------------------------------------------------------------------------------

class Children:
    """The programs we started. None of them outlives us, however we end."""

    def __init__(self):
        self.running = []

    def start(self, command: list, **options) -> subprocess.Popen:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                   start_new_session=True,
                                   preexec_fn=check_transcript._die_with_parent, **options)
        self.running.append(process)
        return process

    def ended(self, process: subprocess.Popen) -> None:
        check_transcript.kill_group(process)  # What it may have left behind.
        if process in self.running:
            self.running.remove(process)

    def end_all(self) -> None:
        for process in self.running:
            try:
                os.killpg(process.pid, signal.SIGTERM)  # Let them remove what they made.
            except (ProcessLookupError, PermissionError):
                pass
        deadline = time.monotonic() + 3
        for process in list(self.running):
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            self.ended(process)


CHILDREN = Children()


def call(command: list, seconds: float, output: Path | None = None, **options) -> int | None:
    """Run to the end; output goes to a file or, with None, to our own. None: it took too long."""
    with open(output, "wb") if output else open(os.devnull, "rb") as file:
        if output:
            options.update(stdout=file, stderr=subprocess.STDOUT)
        process = CHILDREN.start(command, **options)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            CHILDREN.ended(process)


def tail(path: Path, lines: int = 30) -> str:
    text = path.read_bytes()[-20000:].decode("utf-8", "backslashreplace")
    return "\n".join(text.rstrip().splitlines()[-lines:])


# ---- what this machine has ---------------------------------------------------------------------

def need(program: str, package: str) -> str:
    found = shutil.which(program)
    if not found:
        raise CourseError(f"{program} is missing; install the Debian package {package}: "
                          "sh tools/setup.sh")
    return found


def cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Machine:
    """The compilers and the GPU at hand."""

    def __init__(self):
        self.nvcc = shutil.which("nvcc")
        self.gpu = None  # "NVIDIA H200"
        self.capability = 0  # 90
        try:
            done = subprocess.run([sys.executable, "-c", GPU_PROBE], capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=60, check=False)
            if done.returncode == 0:
                number, self.gpu = done.stdout.strip().split(" ", 1)
                self.capability = int(number)
        except (subprocess.TimeoutExpired, OSError):
            pass
        self.cpu_runtime = CPU_TOOL.is_file()

    def way(self, lesson: Lesson) -> str:
        """How a lesson would run here: 'g++', 'nvcc', 'cpu', or '' for not at all."""
        if lesson.language == "c++":
            return "g++"
        if self.nvcc and self.gpu:
            return "nvcc"
        return "cpu" if self.cpu_runtime else ""

    def why_no_gpu(self) -> str:
        return "no GPU was found" if self.nvcc else "nvcc was not found"


# ---- list and run ------------------------------------------------------------------------------

def show_list() -> int:
    machine = Machine()
    everything = course.lessons()
    for chapter in dict.fromkeys(lesson.chapter for lesson in everything):
        chosen = [lesson for lesson in everything if lesson.chapter == chapter]
        width = max(len(lesson.id) for lesson in chosen)
        say(chapter)
        for lesson in chosen:
            say(f"  {lesson.id:<{width}}  {lesson.section:<4}  {lesson.title}")
            if not machine.way(lesson):
                say(f"  {'':<{width}}        left out here: {machine.why_no_gpu()}")
        say()
    if machine.nvcc and machine.gpu:
        say(f"Kernels run on the GPU: {machine.gpu}.")
    elif machine.cpu_runtime:
        say(f"Kernels run on the CPU, because {machine.why_no_gpu()}.")
    else:
        say(f"Kernels run nowhere, because {machine.why_no_gpu()}.")
    return 0


def heading(lesson: Lesson) -> None:
    say("=" * WIDTH)
    say(f"{lesson.section}  {lesson.title}")
    say(f"{lesson.path}")
    say("=" * WIDTH)


def gpu_build_line(lesson: Lesson, machine: Machine) -> str:
    """The documented line, for an older card with the card's own -arch."""
    found = re.search(r"-arch=sm_(\d+)", lesson.build)
    if found and machine.capability < int(found[1]):
        return lesson.build.replace(found[0], f"-arch=sm_{machine.capability}")
    return lesson.build


def build_program(lesson: Lesson, line: str, directory: Path, log: Path) -> Path | None:
    """Build by a line like the header's and return the program; None if it does not compile.

    A program is kept under a name that depends on all that went into it, and put there in one
    step, so that two runners at the same time do not disturb each other.
    """
    compiler = need(shlex.split(line)[0], "g++")
    parts = [line, compiler, str(os.stat(compiler).st_mtime_ns), course.read_text(lesson.file)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    home = directory / f"{lesson.stem}-{key}"
    program = home / lesson.program
    if program.exists():
        return program
    with tempfile.TemporaryDirectory(prefix=".building-", dir=directory) as scratch:
        shutil.copy(lesson.file, scratch)
        if call(shlex.split(line), BUILD_SECONDS, log, cwd=scratch) != 0:
            return None
        home.mkdir(exist_ok=True)
        os.replace(Path(scratch) / lesson.program, program)
    return program


def writable_directory(wanted: Path) -> tuple[Path, bool]:
    """The directory, made where need be; elsewhere a temporary one. True if it is temporary."""
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            return wanted, False
    except OSError as error:
        note(f"{wanted} cannot be written ({error.strerror}): building in a temporary directory")
        return Path(tempfile.mkdtemp(prefix="lessons-")), True


def run_one(lesson: Lesson, machine: Machine, directory: Path, progress: str) -> str:
    """Run one lesson. Returns ran, failed, or why it was left out."""
    heading(lesson)
    way = machine.way(lesson)
    if not way:
        say(f"left out: {machine.why_no_gpu()}\n")
        return f"left out, because {machine.why_no_gpu()}"
    if way == "cpu":
        defines = [f"--define={name}" for name in lesson.cpu_defines]
        line = " ".join(["python3 tools/cuda_on_cpu.py", *defines, str(lesson.path)])
        command = [sys.executable, CPU_TOOL, *defines, lesson.file]
        slow = "; this can take a minute or two" if "bench" in lesson.labels else ""
        note(f"[{progress}] building {lesson.path.name} for the CPU and running it{slow}")
    else:
        line = lesson.build if way == "g++" else gpu_build_line(lesson, machine)
        log = directory / f"{lesson.stem}-{os.getpid()}.log"
        note(f"[{progress}] building {lesson.path.name} with {way}")
        program = build_program(lesson, line, directory, log)
        if program is None:
            note(tail(log))
        elif way == "nvcc" and line != lesson.build:
            note(f"(this card is older than the documented -arch: {line})")
        log.unlink(missing_ok=True)
        if program is None:
            say(f"$ {line}\nthe build failed\n")
            return "failed"
        command = [program, *shlex.split(lesson.run)[1:]]
        line += f"\n$ {lesson.run}"
    say(f"$ {line}\n")
    with tempfile.TemporaryDirectory(prefix="lessons-run-") as scratch:
        status = call(command, BUILD_SECONDS, env={**os.environ, "TMPDIR": scratch})
    say()
    if status == check_transcript.SKIPPED:
        return "left out, because it needs a GPU"
    if status != 0:
        how = "was stopped, it took too long" if status is None else f"ended with status {status}"
        note(f"{lesson.path} {how}")
        return "failed"
    return "ran"


def run_lessons(names: list[str]) -> int:
    chosen: list[Lesson] = []
    for name in names:
        chosen += [lesson for lesson in course.find(name) if lesson not in chosen]
    chosen = chosen or course.lessons()
    need("g++", "g++")
    machine = Machine()
    directory, temporary = writable_directory(ROOT / "build" / "run")
    results = {}
    try:
        for number, lesson in enumerate(chosen, start=1):
            results[lesson.id] = run_one(lesson, machine, directory, f"{number}/{len(chosen)}")
    finally:
        CHILDREN.end_all()
        if temporary:
            shutil.rmtree(directory, ignore_errors=True)
    for name, result in results.items():
        if result.startswith("left out"):
            say(f"{name}: {result}")
    ran = sum(result == "ran" for result in results.values())
    failed = [name for name, result in results.items() if result == "failed"]
    ways = {machine.way(lesson) for lesson in chosen if results[lesson.id] == "ran"}
    where = {"nvcc": f"; kernels ran on the GPU {machine.gpu}",
             "cpu": f"; kernels ran on the CPU, because {machine.why_no_gpu()}"}
    say(f"{ran} of {len(results)} lessons ran" + "".join(where.get(way, "") for way in ways)
        + (f"; failed: {' '.join(failed)}" if failed else ""))
    return 1 if failed or not ran else 0


# ---- test --------------------------------------------------------------------------------------

class Tally:
    """What became of each test."""

    def __init__(self):
        self.entries = []  # (name, outcome, detail, seconds)
        self.kernels = {}  # lesson id: list of "GPU (name)", "CPU (n workers)", "not run (why)"

    def add(self, name: str, outcome: str, detail: str = "", seconds: float = 0.0) -> None:
        self.entries.append((name, outcome, detail, seconds))

    def count(self, outcome: str) -> int:
        return sum(entry[1] == outcome for entry in self.entries)

    def where(self, ids: list[str]) -> str:
        """One phrase for where the kernels of the .cu lessons ran."""
        ran = {key: [name for name in ids
                     if any(place.startswith(key) for place in self.kernels.get(name, []))]
               for key in ("GPU", "CPU")}
        names = sorted({place[5:-1] for places in self.kernels.values() for place in places
                        if place.startswith("GPU")})
        nowhere = [name for name in ids if name not in ran["GPU"] + ran["CPU"]]
        gpu = f"{len(ran['GPU'])} lessons on GPU" + (f" {', '.join(names)}" if names else "")
        return f"{gpu}, {len(ran['CPU'])} on CPU, {len(nowhere)} nowhere"


def find_make() -> list[str]:
    """CMake options that name the program that builds, where PATH alone would not do."""
    names = ("ninja", "make", "gmake")
    if any(shutil.which(name) for name in names):
        return []
    for name in names[1:]:
        found = shutil.which(name, path="/usr/bin:/usr/local/bin")
        if found:
            return [f"-DCMAKE_MAKE_PROGRAM={found}"]
    need("make", "make")
    return []


def check_programs() -> None:
    need("g++", "g++")
    cmake = need("cmake", "cmake")
    find_make()
    done = subprocess.run([cmake, "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"(\d+)\.(\d+)", done.stdout)
    if not version:
        raise CourseError(f"{cmake} does not work; install the Debian package cmake")
    if (int(version[1]), int(version[2])) < (3, 22):
        raise CourseError(f"CMake 3.22 is needed and this is {version[0]}; install the Debian "
                          "package cmake of a newer release")


def lock(directory: Path):
    """Hold the build directory until we end; wait while somebody else does."""
    file = open(directory / "lessons.lock", "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note(f"{directory} is in use by another lessons.py test: waiting for it to end")
        fcntl.flock(file, fcntl.LOCK_EX)
    return file


def forget_stale_configuration(directory: Path, options: list[str]) -> None:
    """CMake remembers paths and compilers. Start afresh when any of them is another one now."""
    programs = {name: shutil.which(name)
                for name in ("cmake", "g++", "c++", "nvcc", "make", "ninja")}
    variables = {name: os.environ.get(name) for name in
                 ("CXX", "CXXFLAGS", "LDFLAGS", "CUDACXX", "CUDAHOSTCXX", "CUDAFLAGS",
                  "CMAKE_GENERATOR")}
    key = json.dumps([str(ROOT), str(directory), options, programs, variables], indent=1) + "\n"
    kept = directory / "lessons.key"
    if not kept.exists() or kept.read_text(encoding="utf-8") != key:
        (directory / "CMakeCache.txt").unlink(missing_ok=True)
        shutil.rmtree(directory / "CMakeFiles", ignore_errors=True)
        course.write_atomically(kept, key)


def cached(directory: Path, name: str) -> str:
    """An entry of CMake's cache."""
    text = (directory / "CMakeCache.txt").read_text("utf-8", "replace")
    found = re.search(rf"^{name}:INTERNAL=(.*)$", text, re.MULTILINE)
    return found[1] if found else ""


def configure_and_build(directory: Path, jobs: int, require_gpu: bool, tally: Tally) -> bool:
    # Without a GPU the programs that nvcc makes run nowhere, and test_documented_lines makes and
    # starts each of them anyway. A second build would only take time.
    nvcc = require_gpu or Machine().gpu is not None
    options = [f"-DPython3_EXECUTABLE={sys.executable}",
               f"-DNVCC_LESSONS={'ON' if nvcc else 'OFF'}",
               f"-DREQUIRE_CUDA={'ON' if require_gpu else 'OFF'}", *find_make()]
    forget_stale_configuration(directory, options)
    log = directory / "lessons.log"
    note("configuring")
    command = ["cmake", "-S", ROOT, "-B", directory, *options]
    if call(command, BUILD_SECONDS, log) != 0:
        # An interrupted configuration may have left the directory in a state CMake trips over.
        (directory / "CMakeCache.txt").unlink(missing_ok=True)
        shutil.rmtree(directory / "CMakeFiles", ignore_errors=True)
        start = time.monotonic()
        if call(command, BUILD_SECONDS, log) != 0:
            (directory / "lessons.key").unlink(missing_ok=True)
            tally.add("configure", "failed", tail(log), time.monotonic() - start)
            return False
    for line in log.read_text(encoding="utf-8", errors="backslashreplace").splitlines():
        if line.startswith("-- CUDA:"):
            say(line[3:])
    note(f"building with {jobs} at a time")
    start = time.monotonic()
    go_on = ["-k", "0"] if "Ninja" in cached(directory, "CMAKE_GENERATOR") else ["-k"]
    status = call(["cmake", "--build", directory, "-j", jobs, "--", *go_on], BUILD_SECONDS, log)
    text = log.read_text(encoding="utf-8", errors="backslashreplace")
    seconds = time.monotonic() - start
    warnings = [line for line in text.splitlines() if re.search(r"\bwarning\b", line)]
    if status != 0:
        tally.add("build", "failed", tail(log, 60), seconds)
        remove_stale_programs(directory)
    elif warnings:
        tally.add("build", "failed", "\n".join(warnings[:20]), seconds)
    else:
        tally.add("build", "passed", "", seconds)
    return True


def remove_stale_programs(directory: Path) -> None:
    """After a build that failed: no test may pass with a program from an older source."""
    for lesson in course.lessons():
        for program in (directory / lesson.chapter).glob(f"{lesson.stem}*"):
            if program.stat().st_mtime_ns < lesson.file.stat().st_mtime_ns:
                program.unlink()


def run_ctest(directory: Path, jobs: int, environment: dict, tally: Tally) -> None:
    """Run the transcript tests. In a thread an exception would end unseen: it is a failure."""
    try:
        run_transcripts(directory, jobs, environment, tally)
    except Exception as error:  # Whatever it is, the transcripts were not all checked.
        tally.add("ctest", "failed", f"{type(error).__name__}: {error}")


def run_transcripts(directory: Path, jobs: int, environment: dict, tally: Tally) -> None:
    note("running the lessons' transcript tests")
    report, log = directory / "ctest.xml", directory / "ctest.log"
    report.unlink(missing_ok=True)
    ctest = cached(directory, "CMAKE_CTEST_COMMAND") or "ctest"
    status = call([ctest, "--test-dir", directory, "--no-tests=error", "--output-junit", report,
                   "-j", jobs], LONG_SECONDS, log, env=environment)
    try:
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        tally.add("ctest", "failed", f"{tail(log)}\nno usable report: {error}")
        return
    failures = 0
    for case in cases:
        output = (case.findtext("system-out") or "").strip()
        name, state = case.get("name"), case.get("status")
        seconds = float(case.get("time") or 0)
        skipped = re.search(r"^skipped: (.*)$", output, re.MULTILINE)
        if state == "run":
            tally.add(name, "passed", "", seconds)
        elif skipped and case.find("skipped") is not None:
            tally.add(name, "skipped", skipped[1], seconds)
        else:
            failures += 1
            message = case.find("failure")
            why = message.get("message") if message is not None else state
            tally.add(name, "failed", output or why or "it did not run", seconds)
        place = re.search(r"^kernels: (.*)\Z", output, re.MULTILINE)
        if place and state == "run":
            tally.kernels.setdefault(name.rsplit(".", 1)[0], []).append(place[1])
    if status != 0 and not failures:
        tally.add("ctest", "failed", tail(log))


def test_modules() -> list[str]:
    names = sorted(path.stem for path in (ROOT / "tools" / "tests").glob("test_*.py"))
    slow = [f"test_{name}" for name in SLOW_MODULES if f"test_{name}" in names]
    return slow + [name for name in names if name not in slow]


def collect(name: str, result: Path, log: Path, status: int | None, seconds: float,
            tally: Tally) -> None:
    """Add what one module wrote. A module without a result is one failed test."""
    try:
        entries = json.loads(result.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        how = "took too long and was stopped" if status is None else f"ended with status {status}"
        tally.add(f"tools.tests.{name}", "failed", f"the module {how}\n{tail(log)}", seconds)
        return
    for entry in entries:
        tally.add(entry["test"], entry["outcome"], entry["detail"], entry.get("seconds", 0.0))


def run_modules(scratch: Path, environment: dict, seconds: float, beside: threading.Thread,
                tally: Tally) -> None:
    """Run the tools' own tests, some modules at a time; one fewer as long as `beside` runs."""
    waiting = test_modules()
    if not waiting:
        tally.add("tools.tests", "failed", "there are no modules of tests")
    running = {}
    while waiting or running:
        while waiting and len(running) < MODULES_AT_A_TIME - beside.is_alive():
            name = waiting.pop(0)
            result, log = scratch / f"{name}.json", scratch / f"{name}.log"
            temporary = scratch / name
            temporary.mkdir()
            with open(log, "wb") as file:
                process = CHILDREN.start(
                    [sys.executable, "-B", ROOT / "tools" / "run_test_module.py",
                     f"tools.tests.{name}", result], cwd=ROOT, stdout=file,
                    stderr=subprocess.STDOUT, env={**environment, "TMPDIR": str(temporary)})
            running[name] = (process, result, log, time.monotonic())
            note(f"running tools/tests/{name}.py")
        time.sleep(0.05)
        for name, (process, result, log, start) in list(running.items()):
            status, taken = process.poll(), time.monotonic() - start
            if status is not None or taken > seconds:
                CHILDREN.ended(process)
                collect(name, result, log, status, taken, tally)
                del running[name]
                note(f"tools/tests/{name}.py ended after {taken:.1f} s")


def run_sanitizer(scratch: Path, environment: dict, tally: Tally) -> None:
    note("running compute-sanitizer")
    log = scratch / "sanitizer.log"
    start = time.monotonic()
    status = call([sys.executable, "-B", SANITIZER_TOOL], LONG_SECONDS, log, cwd=ROOT,
                  env=environment)
    outcome = {0: "passed", check_transcript.SKIPPED: "skipped"}.get(status, "failed")
    if outcome == "skipped" and environment.get("LESSONS_REQUIRE_GPU"):
        outcome = "failed"
    lines = tail(log, 40)
    if outcome == "skipped":
        lines = lines.splitlines()[-1] if lines else "it gave no reason"
    elif outcome == "passed":
        say(lines)
    tally.add("compute-sanitizer", outcome, lines, time.monotonic() - start)


def report(tally: Tally, started: float) -> int:
    slowest = sorted(tally.entries, key=lambda entry: -entry[3])[:8]
    say("slowest: " + ", ".join(f"{name.replace('tools.tests.', '')} {seconds:.1f} s"
                                for name, _, _, seconds in slowest))
    shown = set()
    for name, outcome, detail, _ in tally.entries:
        if outcome == "failed":
            say(f"\nFAILED {name}")
            lines = detail.splitlines() or ["it gave no reason"]
            if lines[-1] in shown:  # The same reason many times over is told once.
                lines = lines[-1:]
            shown.add(lines[-1])
            say("\n".join(f"  {line}" for line in lines[:DETAIL_LINES]))
            if len(lines) > DETAIL_LINES:
                say(f"  ... {len(lines) - DETAIL_LINES} more lines, the last: {lines[-1]}")
    skipped = {}
    for name, outcome, detail, _ in tally.entries:
        if outcome == "skipped":
            skipped.setdefault(detail, []).append(name.replace("tools.tests.", ""))
    for reason, names in skipped.items():
        say(f"skipped: {', '.join(names)}: {reason}")
    failed = tally.count("failed")
    note(f"took {time.monotonic() - started:.0f} s")
    cuda = [lesson.id for lesson in course.lessons() if lesson.language == "cuda"]
    say(f"{tally.count('passed')} passed, {failed} failed, {tally.count('skipped')} skipped; "
        f"kernels: {tally.where(cuda)}")
    return 1 if failed or not tally.count("passed") else 0


def test(options: argparse.Namespace) -> int:
    started = time.monotonic()
    check_programs()
    course.lessons()
    tally = Tally()
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("LESSONS_LONG", None)
    environment.pop("LESSONS_REQUIRE_GPU", None)
    if options.long:
        environment["LESSONS_LONG"] = "1"
    if options.require_gpu:
        environment["LESSONS_REQUIRE_GPU"] = "1"
    directory, temporary = writable_directory(ROOT / "build")
    scratch = Path(tempfile.mkdtemp(prefix="lessons-test-"))
    held = None
    try:
        held = lock(directory)
        environment["LESSONS_BUILD_DIR"] = str(directory)
        # The compiled CPU runtime, which the modules would otherwise compile once each.
        environment.setdefault("CUDA_ON_CPU_CACHE", str(directory / "cpu_runtime"))
        transcripts = threading.Thread(
            target=run_ctest, args=(directory, options.jobs, environment, tally), daemon=True)
        if configure_and_build(directory, options.jobs, options.require_gpu, tally):
            transcripts.start()
        run_modules(scratch, environment, LONG_SECONDS if options.long else MODULE_SECONDS,
                    transcripts, tally)
        if transcripts.ident is not None:
            transcripts.join()
        if options.compute_sanitizer:
            run_sanitizer(scratch, environment, tally)
    finally:
        CHILDREN.end_all()
        shutil.rmtree(scratch, ignore_errors=True)
        if temporary:
            shutil.rmtree(directory, ignore_errors=True)
        if held:
            held.close()
    return report(tally, started)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = course.Parser(__doc__, prog="lessons.py")
    commands = parser.add_subparsers(dest="command", required=True, metavar="list | run | test")
    commands.add_parser("list", help="the lessons in reading order")
    run = commands.add_parser("run", help="build and run lessons")
    run.add_argument("lesson", nargs="*", metavar="NUMBER",
                     help="id, stem, path or chapter of a lesson; default: all of them")
    tests = commands.add_parser("test", help="build and test everything")
    tests.add_argument("-j", "--jobs", type=positive, default=cpu_count(), metavar="N",
                       help="how much is built and run at a time (default: one a core)")
    tests.add_argument("--long", action="store_true", help="the long campaigns too")
    tests.add_argument("--require-gpu", action="store_true",
                       help="no nvcc or no GPU is a failure, not a skip")
    tests.add_argument("--compute-sanitizer", action="store_true",
                       help="run the .cu lessons under compute-sanitizer too")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        if options.command == "list":
            return show_list()
        if options.command == "run":
            return run_lessons(options.lesson)
        return test(options)
    except CourseError as error:
        note(f"lessons.py: {error}")
        return 2
    finally:
        CHILDREN.end_all()


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
