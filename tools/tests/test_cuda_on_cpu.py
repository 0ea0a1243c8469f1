# SPDX-License-Identifier: MIT
"""Tests of the CPU runtime and of tools/cuda_on_cpu.py.

    python3 -m unittest tools.tests.test_cuda_on_cpu
    LESSONS_LONG=1 python3 -m unittest tools.tests.test_cuda_on_cpu    also other compilers, 20 runs

The kernels are in common/cuda_on_cpu/tests/. Each is built once for each way of building.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import io
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools import course, cuda_on_cpu

TESTS = cuda_on_cpu.HOME / "tests"
LONG = bool(os.environ.get("LESSONS_LONG"))
COMPILER = "g++" if shutil.which("g++") else "clang++"
TIMEOUT = 1200 if LONG else 300  # seconds; the machine may be busy with other tests

scratch: tempfile.TemporaryDirectory[str]


def setUpModule() -> None:
    global scratch
    scratch = tempfile.TemporaryDirectory(prefix="test_cuda_on_cpu-")
    wanted = [("faults", {}), ("faults", {"check": True}), ("faults", {"sanitize": "address"}),
              ("races", {"sanitize": "thread"}), ("correct", {}), ("correct", {"check": True}),
              ("correct", {"sanitize": "thread"}), ("races", {"debug": True})]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda job: program(job[0], **job[1]), wanted))


def tearDownModule() -> None:
    scratch.cleanup()


def program(name: str, **options: object) -> Path:
    """The program of a .cu file among the tests, built in this way."""
    return build(TESTS / f"{name}.cu", **options)


@functools.lru_cache(maxsize=None)
def _build(source: Path, options: tuple[tuple[str, object], ...]) -> Path:
    settings = dict(options)
    compiler = str(settings.pop("compiler", COMPILER))
    boost = not settings.pop("ucontext", False) and cuda_on_cpu.has_boost_context(compiler)
    directory = Path(tempfile.mkdtemp(dir=scratch.name))
    way = cuda_on_cpu.Build(compiler=compiler, boost=boost, **settings)
    return cuda_on_cpu.compile_program(source, way, directory)


def build(source: Path, **options: object) -> Path:
    return _build(source, tuple(sorted(options.items())))


def run(command: list[str | Path], sanitized: bool = False,
        **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_ON_CPU_")}
    environment |= {"ASAN_OPTIONS": "detect_leaks=0"}
    environment |= {f"CUDA_ON_CPU_{k.upper()}": v for k, v in settings.items()}
    return subprocess.run([str(part) for part in command], env=environment, text=True,
                          capture_output=True, timeout=TIMEOUT, check=False,
                          preexec_fn=cuda_on_cpu.fixed_addresses if sanitized else None)


def marked_line(name: str, mark: str) -> str:
    """'name.cu:LINE' of the line that ends in '// line: MARK'."""
    for number, line in enumerate((TESTS / f"{name}.cu").read_text().splitlines(), 1):
        if line.endswith(f"// line: {mark}"):
            return f"{name}.cu:{number}"
    raise AssertionError(f"{name}.cu has no line {mark}")


def drive(*arguments: str) -> tuple[int, str]:
    """Runs the tool in this process: its status, and what it wrote to stderr."""
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr):
        try:
            status = cuda_on_cpu.main(list(arguments))
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
    return status, stderr.getvalue()


class RewriterTest(unittest.TestCase):
    def rewrite(self, text: str) -> str:
        """The result without the two lines before the first."""
        result = cuda_on_cpu.Rewriter(text, "x.cu").run()
        head, line, body = result.split("\n", 2)
        self.assertEqual((head, line), ("#include <cuda_runtime.h>", '#line 1 "x.cu"'))
        self.assertEqual(body.count("\n"), text.count("\n"))
        return body

    def assertRejected(self, text: str, line: int, why: str) -> None:
        with self.assertRaises(cuda_on_cpu.Unsupported) as caught:
            self.rewrite(text)
        self.assertRegex(str(caught.exception), rf"^x\.cu:{line}: error: .*{why}")

    def test_launch(self) -> None:
        self.assertEqual(
            self.rewrite("void f() { k<<<1, 32>>>(a); }"),
            'void f() { [&](auto... a_) { k(a_...); } '
            '<<::cuda_on_cpu::Config("k", 1, 32).args(a); }')

    def test_kernels_with_template_arguments_and_namespaces(self) -> None:
        for kernel in ("k<int>", "k<(3 > 2 ? 5 : 7)>", "n::k<T, m<int>>", "::k", "::n::k",
                       "n<int>::k"):
            body = self.rewrite(f"{{ if (x) {kernel}\n<<<g,\n b>>>\n(a,\n b); }}")
            self.assertIn(f"if (x) [&](auto... a_) {{ {kernel}", body)

    def test_shifts_and_comparisons_in_the_configuration(self) -> None:
        body = self.rewrite("k<<<n >> 2, (a > b) ? 1 : 2, sizeof(int) * f(x)[1]>>>();")
        self.assertIn('Config("k", n >> 2, (a > b) ? 1 : 2, sizeof(int) * f(x)[1]).args()', body)

    def test_comments_and_literals_stay(self) -> None:
        for text in ('"k<<<1, 2>>>()"', "// k<<<1, 2>>>()\n", "/* k<<<\n>>> */", "'<'",
                     'R"x(k<<<1, 2>>>() )" )x"', 'u8R"(<<<)"', "1'000'000", "0xff'ff",
                     "// continued \\\n k<<<1, 2>>>()\n", '"\\"<<<"', "u8'<'", "L'\\''",
                     '"asm volatile"', "// asm\n"):
            with self.subTest(text):
                self.assertEqual(self.rewrite(text), text)

    def test_digit_separator_does_not_open_a_literal(self) -> None:
        self.assertIn("Config", self.rewrite("n = 1'000; k<<<1, 1'024>>>();"))

    def test_dynamic_shared(self) -> None:
        def inside(text: str) -> str:
            return self.rewrite("void k() {" + text + "}")[len("void k() {"):-1]

        shared = "auto& s = ::cuda_on_cpu::dynamicShared"
        self.assertEqual(inside("extern __shared__ int s[];"), f"{shared}<int[]>();")
        self.assertEqual(inside("extern __shared__ __align__(16) unsigned char s[];"),
                         f"{shared}<unsigned char[]>();")
        self.assertEqual(inside("extern __shared__ alignas(alignof(T)) P<A, B> s[][32];"),
                         f"{shared}<P<A, B>[][32]>();")
        self.assertEqual(inside("extern __shared__\n  volatile int\n s[];"),
                         f"{shared}<volatile int[]>();\n\n")
        self.assertIn("static const ::cuda_on_cpu::DynamicShared<int> s;",
                      self.rewrite("namespace a {\nextern __shared__ int s[];\n}"))

    def test_what_is_rejected_by_file_and_line(self) -> None:
        self.assertRejected('\n\nvoid f() { asm volatile("nop"); }', 3, "PTX")
        self.assertRejected("\n#include <cooperative_groups.h>\n", 2, "no counterpart")
        self.assertRejected("#include <cub/device/device_scan.cuh>", 1, "no stand-in")
        self.assertRejected("\n__managed__ int x;", 2, "cudaMallocManaged")
        self.assertRejected("{\nk<<<1, 2;\n}", 2, "without >>>")
        self.assertRejected("{\n\nk<<<1, 2>>>;\n}", 3, r"needs \( after >>>")
        self.assertRejected("{\n<<<1, 2>>>();\n}", 2, "kernel's name")
        self.assertRejected("{ table[3]<<<1, 2>>>(); }", 1, "kernel's name")
        self.assertRejected("{ object.k<<<1, 2>>>(); }", 1, "kernel's name")
        self.assertRejected("{\nextern __shared__ int a[], b[];\n}", 2, "expected: extern")
        self.assertRejected("{ extern __shared__ int a; }", 1, "expected: extern")

    def test_a_launch_in_an_included_file_is_rejected_there(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "k.cuh").write_text("\nvoid f() { k<<<1, 2>>>(); }\n")
            source = Path(directory) / "x.cu"
            source.write_text('#include "k.cuh"\n')
            status, stderr = drive("--rewrite", str(source), f"{directory}/x.cpp")
            self.assertEqual(status, 2)
            self.assertRegex(stderr, r"k\.cuh:2: error: .*only in the \.cu file itself")
            source.write_text('// #include "k.cuh"\n')
            self.assertEqual(drive("--rewrite", str(source), f"{directory}/x.cpp"), (0, ""))


class DriverTest(unittest.TestCase):
    def write(self, text: str) -> str:
        path = Path(tempfile.mkdtemp(dir=scratch.name)) / "x.cu"
        path.write_text(text)
        return str(path)

    def test_arguments_defines_and_status_pass_through(self) -> None:
        path = self.write("#include <cstdio>\n__global__ void k() {}\n"
                          "int main(int argc, char** argv) {\n  k<<<1, 1>>>();\n"
                          '  std::fprintf(stderr, "%s %d", argv[argc - 1], X);\n  return 7;\n}\n')
        done = subprocess.run(
            ["python3", str(cuda_on_cpu.ROOT / "tools/cuda_on_cpu.py"), path, "--define", "X=5",
             "--workers", "1", "--", "--check"],
            text=True, capture_output=True, timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertEqual(done.stderr, "--check 5cuda_on_cpu: the kernels ran on 1 CPU thread; "
                                      "times say nothing about a GPU\n")

    def test_a_compile_error_names_the_line_of_the_cu_file(self) -> None:
        path = self.write("__global__ void k(int* p) {\n  p[0] = noSuchName;\n  __clock64x();\n}\n")
        done = subprocess.run(
            ["python3", str(cuda_on_cpu.ROOT / "tools/cuda_on_cpu.py"), path],
            text=True, capture_output=True, timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"x\.cu:2:\d+: error: .*noSuchName")
        self.assertRegex(done.stderr, r"x\.cu:3:\d+: error: .*__clock64x")

    def test_wrong_use(self) -> None:
        path = self.write("int main() {}\n")
        for arguments in ((), ("none.cu",), (path, "--order", "sideways"), (path, "--workers", "0"),
                          (path, "--check", "--sanitize", "thread"),
                          (path, "--sanitize", "address", "--workers", "2")):
            self.assertEqual(drive(*arguments)[0], 2, arguments)

    def test_a_setting_that_makes_no_sense_is_no_default(self) -> None:
        for name, value in (("workers", "many"), ("order", "random:x"), ("stack", "-1")):
            done = run([program("faults"), "trap"], **{name: value})
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"CUDA_ON_CPU_{name.upper()}={value}: expected", done.stderr)


class CorrectTest(unittest.TestCase):
    """Kernels that keep the rules: right results and no report."""

    def assertAllRight(self, path: Path, sanitized: bool = False, **settings: str) -> None:
        done = run([path], sanitized, **settings)
        self.assertEqual((done.returncode, done.stdout), (0, "all right\n"), done.stderr[-3000:])
        self.assertRegex(done.stderr, r"\Acuda_on_cpu: the kernels ran on \d+ CPU threads?; times "
                                      r"say nothing about a GPU\n\Z")

    def test_workers_and_orders(self) -> None:
        for workers in ("1", "2", "5"):
            for order in ("ascending", "descending", "random:1", "random:2"):
                with self.subTest(workers=workers, order=order):
                    self.assertAllRight(program("correct"), workers=workers, order=order)

    def test_check(self) -> None:
        self.assertAllRight(program("correct", check=True), check="1")

    def test_thread_sanitizer(self) -> None:
        self.assertAllRight(program("correct", sanitize="thread"), sanitized=True)


class FaultsTest(unittest.TestCase):
    """Each broken rule has its message, with the line of the .cu file."""

    def assertReport(self, case: str, *patterns: str, check: bool = False,
                     status: int = 86) -> None:
        settings = {"check": "1"} if check else {}
        done = run([program("faults", **({"check": True} if check else {})), case],
                   patience="1", **settings)
        self.assertEqual(done.returncode, status, done.stderr)
        for pattern in patterns:
            self.assertRegex(done.stderr, pattern)
        self.assertNotIn("finished", done.stdout)

    def at(self, mark: str) -> str:
        return re.escape(marked_line("faults", mark))

    def test_divergent_barrier(self) -> None:
        place = self.at("divergent_barrier")
        self.assertReport("divergent_barrier", r"kernel divergentBarrier .*block \(\d,0,0\): "
                          r"divergent barrier",
                          rf"threads 0-31: waiting in __syncthreads\(\) at .*{place}",
                          r"threads 32-63: waiting in __syncthreads\(\)")

    def test_deadlock(self) -> None:
        place = self.at("deadlock")
        self.assertReport("deadlock", r"deadlock: no thread of the block can go on",
                          rf"threads 0-39: waiting in __syncthreads\(\) at .*{place}",
                          r"threads 40-63: waiting in __shfl_sync\(\)")

    def test_lanes_missing(self) -> None:
        self.assertReport("lanes_missing", r"threads 0-7, 32-39: waiting in __shfl_down_sync\(\) "
                          rf"at .*{self.at('lanes_missing')}",
                          r"threads 8-31, 40-63: waiting in __syncthreads\(\)")

    def test_wrong_mask(self) -> None:
        self.assertReport("wrong_mask", r"wrong mask: thread 1 calls __ballot_sync\(\) but its "
                          r"lane 1 is not in its own mask 0x00000001", self.at("wrong_mask"))

    def test_mismatched_functions(self) -> None:
        self.assertReport("mismatched_functions", r"mismatched warp functions: thread 16 calls "
                          r"__all_sync\(\) .*thread 0 __any_sync\(\)",
                          self.at("mismatched_functions"))

    def test_endless_spin(self) -> None:
        self.assertReport("lock_never_freed", r"endless spin: no thread has got anywhere for 1 s",
                          rf"failed atomicCAS\(\) at .*{self.at('lock_never_freed')}")
        self.assertReport("flag_never_set", r"endless spin", r"thread 0: running")

    def test_stack_overflow(self) -> None:
        self.assertReport("stack_overflow", r"kernel stackOverflow, block \(0,0,0\), thread "
                          r"\(0,0,0\): stack overflow")

    def test_trap(self) -> None:
        self.assertReport("trap", rf"thread \(0,0,0\): .*{self.at('trap')}: __trap\(\)")

    def test_check_out_of_bounds(self) -> None:
        place = rf"( at .*{self.at('write_at')})?"
        self.assertReport("global_after", r"kernel writeAt, block \(\d,0,0\), thread \(5,0,0\): "
                          rf"access out of bounds{place}: byte 256 of a cudaMalloc block of 256",
                          check=True)
        self.assertReport("global_before", r"kernel writeAt.*write out of bounds: byte -4 of",
                          check=True)
        self.assertReport("dynamic_shared", r"thread \(32,0,0\): access out of bounds.*dynamic "
                          r"shared memory, 128 bytes", check=True)

    def test_check_pointers(self) -> None:
        self.assertReport("host_pointer", rf"{self.at('host_pointer')}: argument 1 of kernel "
                          r"writeAt .*is a host pointer", check=True)
        self.assertReport("freed", r"argument 1 of kernel writeAt .*that was freed", check=True)
        self.assertReport("freed_inside", r"kernel writeInBox.*access to freed device memory",
                          check=True)
        self.assertReport("host_touches", r"host code touched device memory.*: byte 12 of",
                          check=True)

    def test_check_unset_shared_memory(self) -> None:
        self.assertReport("unset_shared", rf"thread \(0,0,0\): .*{self.at('unset_shared')}: atomic "
                          r"update of shared memory that no thread has set", check=True)
        done = run([program("faults", check=True), "unset_shared_read"], check="1")
        self.assertEqual(done.stdout, "finished: cdcdcdcd\n")

    def test_address_sanitizer(self) -> None:
        address = program("faults", sanitize="address")
        for case, what, mark in (("global_after", "heap-buffer-overflow", "write_at"),
                                 ("global_before", "heap-buffer-overflow", "write_at"),
                                 ("dynamic_shared", "heap-buffer-overflow", "dynamic_shared"),
                                 ("static_shared", "out of bounds for type", "static_shared"),
                                 ("freed", "heap-use-after-free", "write_at"),
                                 ("host_touches", "use-after-poison", "host_touches"),
                                 ("stack_overflow", "stack-overflow", "stack_overflow")):
            with self.subTest(case):
                done = run([address, case], sanitized=True)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(what, done.stderr)
                self.assertIn(marked_line("faults", mark), done.stderr)
        self.assertRegex(run([address, "global_after"], True).stderr,
                         r"cuda_on_cpu: kernel writeAt, block \(0,0,0\), thread \(5,0,0\)")

    def test_no_report_without_a_fault(self) -> None:
        for options, settings in (({}, {}), ({"check": True}, {"check": "1"}),
                                  ({"sanitize": "address"}, {})):
            done = run([program("faults", **options), "none"], bool(options), **settings)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


class RacesTest(unittest.TestCase):
    RACES = {"missing_barrier": "missingBarrier", "missing_barrier_left": "missingBarrierLeft",
             "count_shared": "countShared", "count_global": "countGlobal",
             "count_between_blocks": "countBetweenBlocks", "count_volatile": "countVolatile",
             "shuffle_is_no_barrier": "shuffleIsNoBarrier"}
    CLEAN = ("with_barrier", "warp_reduce", "early_return", "sync_warp", "last_block", "look_back")
    RUNS = 20 if LONG else 1

    def assertRace(self, command: list[str | Path], kernel: str, **settings: str) -> None:
        done = run(command, sanitized=True, **settings)
        self.assertEqual(done.returncode, 66, done.stderr)
        self.assertIn("WARNING: ThreadSanitizer: data race", done.stderr)
        self.assertRegex(done.stderr, rf"#\d {kernel}\(.*\.cu:\d+")

    def test_races_are_reported_each_time(self) -> None:
        for case, kernel in self.RACES.items():
            for _ in range(self.RUNS):
                with self.subTest(case):
                    self.assertRace([program("races", sanitize="thread"), case], kernel)

    def test_no_race_no_report(self) -> None:
        for case in self.CLEAN:
            with self.subTest(case):
                done = run([program("races", sanitize="thread"), case], sanitized=True)
                self.assertEqual(done.returncode, 0, done.stderr[-3000:])
                self.assertNotIn("ThreadSanitizer", done.stderr)

    def test_order_exposes_what_luck_has_hidden(self) -> None:
        # With threads in order the left neighbor has always written; the other way round, never.
        lucky = run([program("races", debug=True), "missing_barrier_left"], order="ascending")
        self.assertEqual(lucky.stdout, "finished: 0 1\n")
        unlucky = run([program("races", debug=True), "missing_barrier_left"], order="descending")
        self.assertEqual((unlucky.returncode, unlucky.stdout == lucky.stdout), (0, False))

    def test_day_29_without_one_of_its_barriers(self) -> None:
        kernel = course.snippet(course.ROOT / "day29/histogram.cu", "private-kernel")
        barriers = [m.start() for m in re.finditer(r"__syncthreads\(\);", kernel)]
        self.assertGreaterEqual(len(barriers), 2)
        text = "#include <cstddef>\n#include <cstdlib>\nconstexpr int kBins = 256;\n"
        for i, copy in enumerate([kernel] + [kernel[:at] + kernel[at + 16:] for at in barriers]):
            text += f"namespace without_{i} {{\n{copy}\n}}\n"
        for name in ("sum-kernel", "global-kernel"):
            text += course.snippet(course.ROOT / "day29/histogram.cu", name) + "\n"
        text += """int main(int, char** argv) {
  constexpr int kBytes = 20000;
  unsigned char* d_input;
  unsigned int* d_bins;
  cudaMalloc(&d_input, kBytes);
  cudaMalloc(&d_bins, 8 * kBins * sizeof(unsigned int));
  unsigned char* input = new unsigned char[kBytes];
  for (int i = 0; i < kBytes; ++i) input[i] = static_cast<unsigned char>(i * 2654435761u >> 24);
  cudaMemcpy(d_input, input, kBytes, cudaMemcpyHostToDevice);
  cudaMemset(d_bins, 0, 8 * kBins * sizeof(unsigned int));
  switch (std::atoi(argv[1])) {
"""
        for i in range(len(barriers) + 1):
            text += (f"    case {i}: without_{i}::histogramPrivate<<<8, 256>>>(d_input, kBytes, "
                     "d_bins); break;\n")
        text += ("    case 99: histogramGlobal<<<8, 256>>>(d_input, kBytes, d_bins);\n"
                 "      sumBytes<<<8, 256>>>(d_input, kBytes, d_bins);\n")
        source = Path(tempfile.mkdtemp(dir=scratch.name)) / "private.cu"
        source.write_text(text + "  }\n}\n")
        path = build(source, sanitize="thread")
        for case in ("0", "99"):
            whole = run([path, case], sanitized=True)
            self.assertEqual(whole.returncode, 0, whole.stderr)
        for i in range(1, len(barriers) + 1):
            for _ in range(self.RUNS):
                with self.subTest(f"without barrier {i}"):
                    self.assertRace([path, str(i)], rf"without_{i}::histogramPrivate")


class LessonsTest(unittest.TestCase):
    """The course's own kernels are clean, at sizes that a sanitizer gets through."""

    def assertClean(self, lesson: str, *defines: str) -> None:
        for way in ("address", "thread"):
            with self.subTest(lesson, sanitizer=way):
                path = build(course.ROOT / lesson, sanitize=way, defines=defines)
                done = run([path], sanitized=True)
                self.assertEqual(done.returncode, 0, done.stderr[-3000:])
                self.assertNotRegex(done.stderr, "Sanitizer|runtime error")

    def test_lesson_20(self) -> None:
        self.assertClean("chapter07/20_privatized_histogram.cu")

    def test_lesson_21(self) -> None:
        self.assertClean("chapter07/21_histogram_to_counting_sort.cu")


class FurtherLessonsLongTest(LessonsTest):
    """Loaded with LESSONS_LONG=1 only."""

    def test_lesson_91(self) -> None:
        self.assertClean("chapter07/91_stable_counting_sort.cu", "SORT_MAX_N=4097", "SORT_RUNS=1")

    def test_lesson_92(self) -> None:
        self.assertClean("chapter07/92_counting_sort_at_speed.cu", "SORT_KEYS=4096u",
                         "SORT_RUNS=1")

    def test_the_floor(self) -> None:
        self.assertClean("day29/histogram_at_the_floor.cu", "HISTOGRAM_SMALL_BYTES=30011u",
                         "HISTOGRAM_LARGE_BYTES=65539u", "HISTOGRAM_RUNS=1", "HISTOGRAM_CALLS=1")

    def test_day_29(self) -> None:
        self.assertClean("day29/histogram.cu", "HISTOGRAM_BYTES=30011u")

    def test_lesson_90_races_as_it_says(self) -> None:
        path = build(course.ROOT / "chapter07/90_race_on_hardware.cu", sanitize="thread",
                     defines=("RACE_LAUNCHES=1", "RACE_MAX_N=2048"))
        self.assertIn("ThreadSanitizer: data race", run([path], sanitized=True).stderr)


class DebuggerTest(unittest.TestCase):
    def test_breakpoint_in_one_thread_of_one_block(self) -> None:
        if not shutil.which("gdb"):
            self.skipTest("gdb is not installed (package gdb)")
        place = marked_line("races", "gdb")
        commands = ["set debuginfod enabled off", "set confirm off",
                    f"break {place} if threadIdx.x == 17 && blockIdx.x == 5", "run", "backtrace 3",
                    "print threadIdx", "print blockIdx", "print v", "kill"]
        arguments = ["gdb", "-q", "-nx", "-batch"]
        for command in commands:
            arguments += ["-ex", command]
        done = run([*arguments, "--args", program("races", debug=True), "warp_reduce"])
        if "ptrace" in done.stderr and "not permitted" in done.stderr:
            self.skipTest("gdb may not start processes here")
        self.assertRegex(done.stdout, r"#0 +warpReduce \(in=0x\w+, out=0x\w+\) at .*"
                         + re.escape(place), done.stderr)
        self.assertRegex(done.stdout, r"\$1 = \{x = 17, y = 0, z = 0\}")
        self.assertRegex(done.stdout, r"\$2 = \{x = 5, y = 0, z = 0\}")
        self.assertRegex(done.stdout, r"\$3 = 17\b")


class CMakeTest(unittest.TestCase):
    def test_the_function_builds_a_program(self) -> None:
        if not shutil.which("cmake"):
            self.skipTest("cmake is not installed (package cmake)")
        directory = Path(tempfile.mkdtemp(dir=scratch.name))
        (directory / "x.cu").write_text("__global__ void k() {}\n"
                                        "int main() { k<<<1, 1>>>(); return STATUS; }\n")
        (directory / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.22)\nproject(x CXX)\n"
            f"include(\"{cuda_on_cpu.HOME}/cuda_on_cpu.cmake\")\n"
            "add_cuda_on_cpu_executable(x_on_cpu x.cu STATUS=3)\n")
        for command in (["cmake", "-S", directory, "-B", directory / "b"],
                        ["cmake", "--build", directory / "b", "-j2"]):
            done = run(command)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(run([directory / "b" / "x_on_cpu"]).returncode, 3)


class OtherCompilersLongTest(unittest.TestCase):
    """Loaded with LESSONS_LONG=1 only."""

    def check_compiler(self, compiler: str, package: str) -> None:
        if not shutil.which(compiler):
            self.skipTest(f"{compiler} is not installed (package {package})")
        for options in ({}, {"ucontext": True}, {"sanitize": "address"}, {"sanitize": "thread"},
                        {"sanitize": "thread", "ucontext": True}):
            with self.subTest(str(options)):
                done = run([program("correct", compiler=compiler, **options)], sanitized=True)
                self.assertEqual((done.returncode, done.stdout), (0, "all right\n"), done.stderr)
        race = run([program("races", compiler=compiler, sanitize="thread"), "count_shared"], True)
        self.assertEqual(race.returncode, 66)
        quiet = run([program("races", compiler=compiler, sanitize="thread"), "look_back"], True)
        self.assertEqual(quiet.returncode, 0, quiet.stderr)

    def test_gcc_11(self) -> None:
        self.check_compiler("g++-11", "g++-11")

    def test_gcc(self) -> None:
        self.check_compiler("g++", "g++")

    def test_clang(self) -> None:
        self.check_compiler("clang++", "clang")

    def test_aarch64(self) -> None:
        compiler, emulator = "aarch64-linux-gnu-g++", "qemu-aarch64"
        for tool, package in ((compiler, "g++-aarch64-linux-gnu"), (emulator, "qemu-user")):
            if not shutil.which(tool):
                self.skipTest(f"{tool} is not installed (package {package})")
        emulate = [emulator, "-L", "/usr/aarch64-linux-gnu"]
        done = run([*emulate, program("correct", compiler=compiler)])
        self.assertEqual((done.returncode, done.stdout), (0, "all right\n"), done.stderr)
        for case, message in (("divergent_barrier", "divergent barrier"),
                              ("stack_overflow", "stack overflow"),
                              ("wrong_mask", "wrong mask")):
            done = run([*emulate, program("faults", compiler=compiler), case])
            self.assertEqual(done.returncode, 86, done.stderr)
            self.assertIn(message, done.stderr)


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite,
               _pattern: str | None) -> unittest.TestSuite:
    if LONG:
        return tests
    cases = [RewriterTest, DriverTest, CorrectTest, FaultsTest, RacesTest, LessonsTest,
             DebuggerTest, CMakeTest]
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)


if __name__ == "__main__":
    unittest.main()
