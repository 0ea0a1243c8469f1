"""Troubles that others had with such programs: known_troubles.tsv says what covers each of them.

The first class keeps that table honest. The others are the checks that belong nowhere else: rules
that every source must keep, and the two common blocks against a CUDA runtime that is made up.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools import course
from tools.course import ROOT
from tools.tests.faults.table import FAULTS

TABLE = Path(__file__).with_name("known_troubles.tsv")
LESSONS = course.lessons()
CUDA_LESSONS = [lesson for lesson in LESSONS if lesson.language == "cuda"]


def rows() -> list[tuple[str, str, list[str]]]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    if lines[0] != "topic\ttrouble\tcovered by":
        raise ValueError(f"{TABLE.name}: the first line names the columns")
    return [(topic, trouble, covers.split(" | "))
            for topic, trouble, covers in (line.split("\t") for line in lines[1:])]


def test_is_there(name: str) -> bool:
    """tools/tests/<module>.py has the class and the method, written there or made by a loop."""
    module, _, rest = name.partition(".")
    path = TABLE.with_name(f"{module}.py")
    if not path.is_file():
        return False
    text = path.read_text(encoding="utf-8")
    kind, _, method = rest.partition(".")
    made = ({f"test_{lesson.stem}" for lesson in CUDA_LESSONS}
            if 'f"test_{lesson.stem}"' in text else set())
    return (re.search(rf"^class {kind}\(", text, re.MULTILINE) is not None
            and (not method or method in made
                 or re.search(rf"^    def {method}\(", text, re.MULTILINE) is not None))


def problem(cover: str) -> str | None:
    kind, _, what = cover.partition(" ")
    if kind == "test":
        return None if test_is_there(what) else f"there is no test {what}"
    if kind == "fault":
        found = [fault for fault in FAULTS if fault.name == what]
        if not found:
            return f"there is no fault '{what}'"
        return None if found[0].check != "nothing" else f"the fault '{what}' goes unnoticed"
    if kind == "page":
        name, _, quoted = what.partition(": ")
        path = ROOT / name
        if not path.is_file():
            return f"there is no file {name}"
        return None if quoted in path.read_text(encoding="utf-8") else f"{name} lacks '{quoted}'"
    return f"'{cover}' is neither test, fault nor page"


class Table(unittest.TestCase):
    def test_every_trouble_is_covered(self) -> None:
        for topic, trouble, covers in rows():
            with self.subTest(f"{topic}: {trouble}"):
                self.assertEqual([text for text in map(problem, covers) if text], [])

    def test_all_topics_are_there_and_no_trouble_twice(self) -> None:
        self.assertEqual(list(dict.fromkeys(topic for topic, _, _ in rows())),
                         ["counting", "sorting", "checks", "tool chain", "transcripts", "timing"])
        troubles = [trouble for _, trouble, _ in rows()]
        self.assertEqual(len(set(troubles)), len(troubles))

    def test_what_is_not_there_is_found(self) -> None:
        for cover in ("test test_kernels.OnCpu.test_no_such", "test test_none.A.test_b",
                      "fault no such fault", "page README.md: no such line at all",
                      "page NONE.md: x", "hope and pray",
                      "fault 20's stride has 32 bits"):
            self.assertIsNotNone(problem(cover), cover)


# ---- rules for sources ---------------------------------------------------------------------------

def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def unchecked_launches(text: str) -> list[str]:
    """Launches that no CUDA_CHECK(cudaGetLastError()) follows as the next statement but a brace."""
    code = without_comments(text)
    found = []
    for launch in re.finditer(r"<<<", code):
        end = code.find(";", code.find(">>>", launch.start()))
        if not re.match(r"[\s}]*CUDA_CHECK\(cudaGetLastError\(\)\);", code[end + 1:]):
            line = code.rfind("\n", 0, launch.start()) + 1
            found.append(code[line:end + 1].strip())
    return found


# What clears an error on purpose, asks for one, or gives memory back when the program ends.
UNCHECKED_ON_PURPOSE = re.compile(
    r"const cudaError_t error = cudaGetDeviceCount\(&count\);|\n\s*cudaGetLastError\(\);"
    r"|cudaGetDeviceProperties\(&device, 0\) == cudaSuccess|cudaGetErrorString\([^()]*\)"
    r"|~\w+\(\) \{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")


def unchecked_calls(text: str) -> list[str]:
    code = UNCHECKED_ON_PURPOSE.sub(" ", without_comments(text))
    found = []
    for call in re.finditer(r"\b(?:cuda[A-Z]\w*|cub::\w+::\w+)\s*\(", code):
        before = code[:call.start()].rstrip()
        kept = re.search(r"const cudaError_t (\w+) =$", before)
        checked = before.endswith("CUDA_CHECK(") or (
            kept and f"CUDA_CHECK({kept[1]});" in code[call.end():])
        if not checked and "cudaFailed" not in call[0]:
            found.append(code[code.rfind("\n", 0, call.start()) + 1:call.end()].strip())
    return found


class Sources(unittest.TestCase):
    def every_lesson(self, pattern: str, cuda: bool = False) -> None:
        for lesson in CUDA_LESSONS if cuda else LESSONS:
            with self.subTest(lesson.id):
                code = without_comments(course.read_text(lesson.file))
                self.assertEqual(re.findall(pattern, code), [])

    def test_every_launch_and_every_call_is_checked(self) -> None:
        for lesson in CUDA_LESSONS:
            with self.subTest(lesson.id):
                text = course.read_text(lesson.file)
                self.assertEqual(unchecked_launches(text), [])
                self.assertEqual(unchecked_calls(text), [])

    def test_unchecked_ones_are_found(self) -> None:
        self.assertEqual(len(unchecked_launches("k<<<1, 1>>>(a);\nCUDA_CHECK(cudaFree(a));")), 1)
        self.assertEqual(unchecked_launches("k<<<1, 1>>>(a);\nCUDA_CHECK(cudaGetLastError());"), [])
        self.assertEqual(len(unchecked_calls("void f() {\n  cudaFree(a);\n}")), 1)
        self.assertEqual(unchecked_calls("  CUDA_CHECK(cudaFree(a));\n  cudaGetLastError();"), [])
        kept = "  const cudaError_t e = cudaFree(a);\n"
        self.assertEqual(len(unchecked_calls(kept)), 1)
        self.assertEqual(unchecked_calls(kept + "  CUDA_CHECK(e);"), [])

    def test_no_atomic_of_block_scope(self) -> None:
        self.every_lesson(r"\batomic\w+_block\b|thread_scope_block")

    def test_no_comparison_with_a_tolerance(self) -> None:
        self.every_lesson(r"\bf?abs[fl]?\s*\(|(?i:tolerance|epsilon)")

    def test_no_lesson_sets_a_locale(self) -> None:
        self.every_lesson(r"\bsetlocale\b|std::locale|imbue")

    def test_no_clock_random_source_or_address_in_a_lesson(self) -> None:
        self.every_lesson(r"std::chrono|\btime\s*\(\s*(?:NULL|nullptr|0)|\bs?rand\s*\(|"
                          r"random_device|_distribution|%p\b")

    def test_no_clock_rates_of_cudaDeviceProp(self) -> None:  # noqa: N802
        self.every_lesson(r"\.(?:clockRate|memoryClockRate)\b", cuda=True)

    def test_no_architecture_that_cuda_13_does_not_know(self) -> None:
        for lesson in CUDA_LESSONS:
            for number in re.findall(r"sm_(\d+)", lesson.build):
                self.assertGreaterEqual(int(number), 75, lesson.path)

    def test_nvcc_gets_no_warning_options_of_the_host_compiler(self) -> None:
        for lesson in CUDA_LESSONS:
            self.assertEqual([word for word in lesson.build.split()
                              if word.startswith("-W") or "pedantic" in word], [], lesson.path)

    def test_counters_of_32_bits_have_a_bound(self) -> None:
        """Where the size of the input may be set by -D, a static_assert says how far."""
        for lesson in CUDA_LESSONS:
            code = without_comments(course.read_text(lesson.file))
            if re.search(r"#define HISTOGRAM_\w*BYTES", code):
                self.assertRegex(code, r"static_assert\([^;]*(?:0xffffffffu|<unsigned int>::max)",
                                 lesson.path)

    def test_cmake_never_asks_for_native(self) -> None:
        for path in (ROOT / "CMakeLists.txt", *(ROOT / "common").rglob("*.cmake"),
                     ROOT / "CMakePresets.json"):
            code = re.sub(r"#[^\n]*", "", path.read_text(encoding="utf-8"))
            self.assertNotIn("native", code, path.name)

    def test_no_pass_regular_expression(self) -> None:
        for path in (ROOT / "CMakeLists.txt", *(ROOT / "common").rglob("*.cmake")):
            self.assertNotIn("PASS_REGULAR_EXPRESSION", path.read_text(encoding="utf-8"))

    def test_no_script_pipes_a_result_away(self) -> None:
        for path in (ROOT / "tools" / "setup.sh", ROOT / ".ci" / "run"):
            lines = [line for line in path.read_text(encoding="utf-8").splitlines()
                     if not line.lstrip().startswith("#")]
            self.assertEqual([line for line in lines if re.search(r"[^|]\|[^|]", line)], [])


# ---- the common blocks against a CUDA runtime that is made up ------------------------------------

RUNTIME = """
#pragma once
#include <cstdlib>
enum cudaError_t { cudaSuccess = 0, cudaErrorInsufficientDriver = 35, cudaErrorNoDevice = 100,
                   cudaErrorNoKernelImageForDevice = 209, cudaErrorNotReady = 600 };
struct cudaDeviceProp { char name[256] = "Made Up"; int major = 8, minor = 6; };
inline int setting(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = setting("COUNT");
  return static_cast<cudaError_t>(setting("ERROR"));
}
inline const char* cudaGetErrorString(cudaError_t) { return "made up"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* device, int) {
  *device = cudaDeviceProp();
  return cudaSuccess;
}
inline float now = 0;  // Only launches move this clock.
struct Event { float time = 0; bool reached = false; };
using cudaEvent_t = Event*;
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { *event = new Event; return cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) { delete event; return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t event) { *event = {now, false}; return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  event->reached = true;
  return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t stop) {
  *ms = stop->time - start->time;
  return stop->reached ? cudaSuccess : cudaErrorNotReady;
}
"""
PROGRAM = """
#include "find_device.h"
#include <cstring>
static int calls = 0;
static cudaError_t count(int error) { ++calls; return static_cast<cudaError_t>(error); }
int main(int argc, char** argv) {
  if (argc > 1 && !std::strcmp(argv[1], "once")) {
    CUDA_CHECK(count(0));
    if (calls == 1) CUDA_CHECK(count(0)); else return 3;
    return calls == 2 ? 0 : 4;
  }
  if (argc > 1) CUDA_CHECK(count(std::atoi(argv[1])));
  cudaDeviceProp device;
  const char* why = "";
  if (findDevice(&device, &why)) { std::puts(device.name); return 0; }
  std::fprintf(stderr, "none: %s\\n", why);
  return 77;
}
"""


# The first launch takes long, as it does on a GPU.
TIMING_PROGRAM = """
#include "cuda_check.h"
FUNCTION
int main() {
  int launches = 0;
  const auto launch = [&] { now += setting("COST") * (launches++ == 0 ? 1000 : 1); };
  const float ms = NAME(3, 5, launch);
  std::printf("%d launches, %g ms", launches, ms);
}
"""


class MadeUpRuntime(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.compiler = shutil.which("g++") or shutil.which("clang++")
        if not cls.compiler:
            raise unittest.SkipTest("there is no C++ compiler; install the Debian package g++")
        temporary = tempfile.TemporaryDirectory(prefix="made-up-runtime-")
        cls.addClassCleanup(temporary.cleanup)
        cls.directory = Path(temporary.name)
        (cls.directory / "cuda_runtime.h").write_text(RUNTIME, encoding="utf-8")
        cls.program = cls.directory / "program"

    @classmethod
    def build(cls, text: str) -> None:
        source = cls.directory / "program.cpp"
        source.write_text("#include <cstdio>\n" + text, encoding="utf-8")
        subprocess.run([cls.compiler, "-std=c++17", f"-I{cls.directory}", f"-I{ROOT / 'common'}",
                        source, "-o", cls.program], check=True)

    def run_with(self, *arguments: str, **settings: str) -> tuple[int, str]:
        done = subprocess.run([self.program, *arguments], env=settings, capture_output=True,
                              text=True, check=False)
        return done.returncode, (done.stdout + done.stderr).strip()


class FindDevice(MadeUpRuntime):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.build(PROGRAM)

    def test_only_no_driver_and_no_device_are_no_gpu(self) -> None:
        for settings, status in (({"ERROR": "35"}, 77), ({"ERROR": "100"}, 77),
                                 ({"COUNT": "0"}, 77), ({"COUNT": "1"}, 0),
                                 ({"ERROR": "1"}, 1), ({"ERROR": "3"}, 1), ({"ERROR": "46"}, 1),
                                 ({"ERROR": "222"}, 1), ({"ERROR": "802"}, 1),
                                 ({"ERROR": "999", "COUNT": "1"}, 1)):
            with self.subTest(str(settings)):
                self.assertEqual(self.run_with(**settings)[0], status)

    def test_cuda_check_evaluates_its_argument_once(self) -> None:
        self.assertEqual(self.run_with("once"), (0, ""))

    def test_a_failed_call_names_place_call_and_reason(self) -> None:
        status, said = self.run_with("700")
        self.assertEqual(status, 1)
        self.assertRegex(said, r"program\.cpp:\d+: count\(std::atoi\(argv\[1\]\)\) failed: "
                               r"made up \(error 700\)")

    def test_no_code_for_this_card_names_the_option(self) -> None:
        status, said = self.run_with("209")
        self.assertEqual(status, 1)
        self.assertIn("Made Up needs a build with -arch=sm_86", said)


class Timing(MadeUpRuntime):
    """Every function of a lesson that takes a time, against the made-up clock.

    Lesson 92 has none. It takes the time of one sort inside its check; planted faults show that a
    time of zero (in each test run) and a sort that does nothing (in the long run) end it.
    """

    FUNCTION = re.compile(r"^template <class Launch>\nfloat (\w+)\(([^()]*)\) \{\n.*?^\}\n",
                          re.MULTILINE | re.DOTALL)

    def test_warm_ups_are_not_timed_and_the_end_is_waited_for(self) -> None:
        found = 0
        for lesson in CUDA_LESSONS:
            if lesson.id == "92":
                continue
            text = without_comments(course.read_text(lesson.file))
            functions = list(self.FUNCTION.finditer(text))
            self.assertEqual(text.count("cudaEventRecord("),
                             sum(match[0].count("cudaEventRecord(") for match in functions))
            for match in functions:
                found += 1
                with self.subTest(f"{lesson.id}: {match[1]}"):
                    self.check(match)
        self.assertEqual(found, 2)

    def check(self, match: re.Match) -> None:
        program = TIMING_PROGRAM.replace("FUNCTION", match[0])
        self.build(program.replace("NAME", match[1]))
        self.assertEqual(self.run_with(COST="1"), (0, "8 launches, 1 ms"))
        status, said = self.run_with(COST="0")
        self.assertEqual(status, 1)
        self.assertIn("the timing is void", said)

    def test_what_is_wrong_is_found(self) -> None:
        text = course.read_text(ROOT / "common" / "time_kernel.h")
        for old, new in (("run < warmups", "run < 0"), ("!(total_ms > 0.0f)", "false"),
                         ("  CUDA_CHECK(cudaEventSynchronize(stop));\n", "")):
            with self.subTest(old), self.assertRaises(AssertionError):
                self.assertIn(old, text)
                self.check(self.FUNCTION.search(text.replace(old, new)))


if __name__ == "__main__":
    unittest.main()
