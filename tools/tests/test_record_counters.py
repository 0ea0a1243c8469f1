"""The recorder of the profiler's counters: which launch is on which input, and what it refuses."""

import unittest
import unittest.mock

from tools import check_evidence, evidence, record_counters
from tools.evidence import EvidenceError
from tools.record_counters import Launch, count_atoms, parse_launches, per_input
from tools.tests.evidence_course import LESSON, EvidenceCourse

NCU = """\
#!/bin/sh
case "$*" in
  *--version*) echo "Version 2025.3.1.0 (build 1)"; exit 0;;
  *--query-metrics*) cat "{fakes}/metrics"; exit 0;;
esac
while [ $# -gt 0 ]; do case "$1" in --log-file) log=$2;; ./*) break;; esac; shift; done
[ -e "{fakes}/ncu-fails" ] && {{ echo "==ERROR== no permission" > "$log"; exit 1; }}
cp "{fakes}/report.csv" "$log"
exec "$@"
"""
NAMES = [names[0] for names in record_counters.METRICS.values()]
COUNTS = [(1000, 3200, 2200), (1000, 3210, 2210), (1000, 1500, 500), (1000, 1000, 0)]
SASS = """\
  code for sm_75
    Function : _Z5tablePKhmPj
        /*0000*/                   ATOMS.POPC.INC.32 RZ, [R1] ;
  code for sm_90
    Function : _Z5tablePKhmPj
        /*0000*/                   ATOMS.POPC.INC.32 RZ, [R1+URZ] ;
        /*0010*/              @!P0 ATOMS.POPC.INC.32 RZ, [R2] ;
        /*0020*/                   LDS R1, [R2] ;
    Function : _Z13tablePerLanesILi4EEvPKhmPj
        /*0000*/                   ATOMS.ADD R3, [R1], R2 ;
        /*0010*/                   ATOMS R3, [R1], R2 ;
"""


def report(launches: list[tuple[str, tuple[float, float, float]]]) -> str:
    metrics = ",".join(f'"{name}.sum"' for name in NAMES)
    lines = ["==PROF== Connected to process 1", f'"ID","Kernel Name","Grid Size",{metrics}',
             '"","","","inst","",""']
    for number, (kernel, counts) in enumerate(launches):
        values = ",".join(f'"{count:,}"' for count in counts)
        lines.append(f'"{number}","{kernel}(const unsigned char *, unsigned int *)",'
                     f'"(8, 1, 1)",{values}')
    return "\n".join(lines) + "\n"


def launches_of(kernel: str, counts: list[tuple]) -> list[Launch]:
    return [Launch(kernel, dict(zip(record_counters.METRICS, count))) for count in counts]


class Recording(EvidenceCourse):
    def setUp(self) -> None:
        super().setUp()
        self.fake("ncu", NCU.format(fakes=self.fakes))
        self.fake("cuobjdump", f"#!/bin/sh\ncat {self.fakes}/sass\n")
        (self.fakes / "metrics").write_text("".join(f"{name}  text\n" for name in NAMES))
        (self.fakes / "sass").write_text(SASS)
        full = [COUNTS[0], COUNTS[1], COUNTS[2], COUNTS[2], COUNTS[3], COUNTS[3]]
        (self.fakes / "report.csv").write_text(report(
            [("sum", (0, 0, 0))] + [("table", count) for count in full]
            + [("void tablePerLanes<4>", (20, 20, 0))]
            + [("void tablePerLanes<4>", COUNTS[3])] * 3))
        self.write("day29/histogram.cu", LESSON.replace(
            "int main", "__global__ void sum(int* a) {}\n__global__ void table(int* a) {}\n"
            "template <int N>\n__global__ void __launch_bounds__(1024, 2)\n"
            "    tablePerLanes(int* a) {}\nint main"))
        self.commit()

    def record(self) -> tuple[int, str]:
        return self.call(record_counters.main, "histogram")

    def test_counters_become_evidence(self) -> None:
        status, said = self.record()
        self.assertEqual(status, 0, said)
        [path] = self.evidence()
        self.assertRegex(path.name, r"^run-[-\d]{10}-h200-histogram-counters\.txt$")
        found = evidence.parse(path)
        self.assertIn("built with the documented sizes", found.stdout)
        self.assertRegex(found.stdout, r"table +uniform bytes +1000 +3200 +2200 +3\.200\n")
        self.assertRegex(found.stdout, r"table +all one byte +1000 +1000 +0 +1\.000\n")
        self.assertRegex(found.stdout, r"tablePerLanes<4> +english text +1000 +1000 +0 +1\.000")
        self.assertRegex(found.stdout, r"\ntable +2 +0\ntablePerLanes +0 +2\n")
        self.assertNotIn("sum ", found.stdout)
        self.assertEqual(check_evidence.check_file(path, self.root), [])
        self.assertEqual(self.record()[0], 1)  # Never over a file that exists.

    def test_a_quotient_that_does_not_follow_is_found(self) -> None:
        self.record()
        [path] = self.evidence()
        path.write_text(path.read_text().replace("3.200\n", "3.300\n"))
        rules = {"histogram-counters": check_evidence.RULES["histogram_at_the_floor-counters"]}
        with unittest.mock.patch.dict(check_evidence.RULES, rules):
            problems = check_evidence.check_file(path, self.root)
        self.assertTrue(any("3.300 does not follow" in problem for problem in problems), problems)

    def test_refusals(self) -> None:
        def refused(text: str) -> None:
            status, said = self.record()
            self.assertEqual((status, self.evidence()), (1, []), said)
            self.assertIn(text, said)

        plans = {"histogram": record_counters.Plan(last=True)}
        with unittest.mock.patch.object(record_counters, "PLANS", plans):
            refused("are about nothing, not about uniform bytes")
        (self.fakes / "ncu-fails").touch()
        refused("==ERROR== no permission")
        (self.fakes / "ncu-fails").unlink()
        (self.fakes / "metrics").write_text("")
        refused("ncu knows none of")
        (self.fakes / "metrics").write_text("".join(f"{name}  text\n" for name in NAMES))
        self.write("day29/histogram.cu", (self.root / "day29/histogram.cu").read_text() + "//\n")
        refused("commit it first")

    def test_no_gpu_or_no_profiler_is_a_skip(self) -> None:
        (self.fakes / "probe.sh").write_text("echo 'no GPU' >&2; exit 77\n")
        self.assertEqual(self.record()[0], 77)
        with unittest.mock.patch.object(record_counters, "find_ncu", lambda: None):
            status, said = self.record()
        self.assertEqual(status, 77)
        self.assertIn("there is no ncu here", said)


class Reading(unittest.TestCase):
    METRICS = {what: f"{name}.sum" for what, name in zip(record_counters.METRICS, NAMES)}

    def test_launches_of_a_report(self) -> None:
        [launch] = parse_launches(report([("void f<4>", (1000, 3200, 2200))]), self.METRICS)
        self.assertEqual(launch, Launch("f<4>", {"instructions": 1000.0, "wavefronts": 3200.0,
                                                 "conflicts": 2200.0}))
        for wrong in ("==ERROR== none\n", report([]), report([("f", (1, 2, 3))]).replace(
                '"3"', '"n/a"')):
            with self.assertRaises(EvidenceError):
                parse_launches(wrong, self.METRICS)

    def test_launches_find_their_inputs(self) -> None:
        small = (10, 10, 0)
        counts = [COUNTS[0], small, COUNTS[2], small, COUNTS[3], small]
        found = per_input(launches_of("f", counts))["f"]
        self.assertEqual([one.counts["wavefronts"] for one in found], [3200, 1500, 1000])

    def test_the_last_launches_count_where_instructions_depend_on_the_input(self) -> None:
        plan = record_counters.Plan(inputs=("a", "b"), last=True)
        found = per_input(launches_of("f", [COUNTS[0], (900, 1, 0), (10, 20, 10)]), plan)["f"]
        self.assertEqual([one.counts["wavefronts"] for one in found], [1, 20])
        with self.assertRaisesRegex(EvidenceError, "no multiple of 2"):
            per_input(launches_of("f", [COUNTS[0]]), plan)

    def test_launches_that_cannot_be_told_apart_are_refused(self) -> None:
        with self.assertRaisesRegex(EvidenceError, "no multiple"):
            per_input(launches_of("f", [COUNTS[0]] * 4))
        with self.assertRaisesRegex(EvidenceError, "not alike"):
            per_input(launches_of("f", [COUNTS[0], COUNTS[2], COUNTS[3]] * 2))
        with self.assertRaisesRegex(EvidenceError, "no kernel uses shared memory"):
            per_input(launches_of("f", [(0, 0, 0)] * 3))

    def test_instructions_are_counted_for_the_card_at_hand(self) -> None:
        kernels = ["table", "tablePerLanes"]
        self.assertEqual(count_atoms(SASS, "9.0", kernels),
                         {"table": (2, 0), "tablePerLanes": (0, 2)})
        self.assertEqual(count_atoms(SASS, "7.5", kernels)["table"], (1, 0))


if __name__ == "__main__":
    unittest.main()
