"""The check of evidence: each defect is caught, and what is committed here has none."""

import random
import re
import shutil
import unittest
from unittest import mock

from tools import check_evidence, course, evidence, record_evidence
from tools.check_evidence import Rules
from tools.tests.evidence_course import (FLOOR_INPUTS, FLOOR_KERNELS, LESSON, STDOUT,
                                         EvidenceCourse, floor_output, program)


class Defects(EvidenceCourse):
    def setUp(self) -> None:
        super().setUp()
        status, said = self.call(record_evidence.main, "histogram")
        self.assertEqual(status, 0, said)
        [self.path] = self.evidence()
        self.commit()

    def problems(self) -> list[str]:
        return check_evidence.check_file(self.path, self.root)

    def rewrite(self, stdout: str | None = None, **fields: str) -> None:
        """Write the file again with other fields (a blank is written _) and a body that fits."""
        found = evidence.parse(self.path)
        changed = {key.replace("_", " "): value for key, value in fields.items()}
        pairs = [(key, changed.get(key, value)) for key, values in found.fields.items()
                 for value in values if key not in ("stdout lines", "body sha256")]
        self.path.write_text(evidence.render(
            [pair for pair in pairs if pair[1]], stdout or found.stdout, found.stderr or None))

    def caught(self, text: str, count: int = 1) -> None:
        problems = self.problems()
        self.assertEqual(len(problems), count, problems)
        self.assertIn(text, problems[0])

    def replaced(self, old: str, new: str, text: str, count: int = 1) -> None:
        self.assertIn(old, STDOUT)
        before = self.path.read_text()
        self.rewrite(STDOUT.replace(old, new))
        self.caught(text, count)
        self.path.write_text(before)

    def test_good_evidence_has_no_problem(self) -> None:
        self.assertEqual(self.problems(), [])
        status, said = self.call(
            lambda argv, root: check_evidence.main(argv, root, required=("histogram",)))
        self.assertEqual((status, said), (0, "1 files of evidence: all well\n"))

    def test_stale_evidence_names_the_commands_that_renew_it(self) -> None:
        self.write("day29/histogram.cu", LESSON + "// one more line\n")
        name = self.path.relative_to(self.root).with_suffix(".*")
        self.caught(f"git rm {name} && python3 tools/record_evidence.py day29/histogram.cu")
        # They do: after a commit, the first takes the file away and the second makes it anew.
        self.commit()
        self.git("rm", "-q", str(name))
        self.assertEqual(self.call(record_evidence.main, "day29/histogram.cu")[0], 0)
        self.assertEqual(self.problems(), [])

    def test_a_source_that_is_gone(self) -> None:
        self.write("day29/other.cu", LESSON.replace("histogram", "other"))
        self.write("CMakeLists.txt", "add_lesson(day29/other.cu LABELS gpu)\n")
        (self.root / "day29/histogram.cu").unlink()
        self.assertTrue(self.problems())

    def test_an_edited_output(self) -> None:
        self.path.write_text(self.path.read_text().replace("0.0984", "0.0985"))
        self.assertIn("its output was changed after it was recorded", self.problems())

    def test_a_file_that_is_cut_off(self) -> None:
        self.path.write_text(self.path.read_text()[:-40])
        self.caught("is cut off")

    def test_every_field_is_needed(self) -> None:
        for key in evidence.COMMON_KEYS + evidence.RUN_KEYS:
            before = self.path.read_text()
            lines = before.splitlines(keepends=True)
            self.path.write_text("".join(x for x in lines if not x.startswith(f"# {key}: ")))
            self.assertTrue(self.problems(), key)
            self.path.write_text(before)

    def test_a_commit_nobody_knows(self) -> None:
        self.rewrite(commit="0123456789" * 4)
        self.caught("commit 012345678901 is not known here")
        self.rewrite(commit="main")
        self.caught("'main' is not a commit")

    def test_a_commit_that_does_not_hold_the_source(self) -> None:
        self.git("rm", "-q", "day29/histogram.cu")
        self.git("commit", "-q", "-m", "Take the lesson away")
        other = self.git("rev-parse", "HEAD")
        self.git("checkout", "-q", "HEAD~", "--", "day29/histogram.cu")
        self.rewrite(commit=other)
        self.caught("it was not committed when it ran")

    def test_without_history_the_rest_is_still_checked(self) -> None:
        shutil.rmtree(self.root / ".git")
        self.assertEqual(self.problems(), [])
        self.write("day29/histogram.cu", LESSON + "// one more line\n")
        self.caught("is stale")

    def test_a_command_that_makes_something_else(self) -> None:
        self.rewrite(regenerate="python3 tools/record_evidence.py day29/other.cu")
        self.caught("the command that makes it again is not")

    def test_other_build_lines(self) -> None:
        self.rewrite(build_line="nvcc histogram.cu -o histogram")
        self.caught("is not built by the recorded line", 2)
        self.setUp()
        self.rewrite(build_line_used="nvcc -arch=sm_75 histogram.cu -o histogram -DFASTER")
        self.caught("was built by another line than the documented one")

    def test_names_that_lie(self) -> None:
        for name in ("run-2020-01-01-h200-histogram.txt", "run-2026-11-30-t4-histogram.txt",
                     "run-today.txt"):
            path = self.path.with_name(name)
            path.write_text(self.path.read_text())
            problems = check_evidence.check_file(path, self.root)
            self.assertTrue(any("its name" in problem for problem in problems), problems)

    def test_figures_that_do_not_follow(self) -> None:
        self.replaced("83.62", "83.92", "speedup of 'uniform bytes': 83.92 does not follow")
        self.replaced("498.98", "510.00", "510.00 does not follow from 49.1000 and 0.0984")
        self.replaced("678 GB/s", "679 GB/s", "679 does not follow from 67,109,475 and 0.0990")
        before = self.path.read_text()
        self.rewrite(STDOUT.replace("256.0", "255.0"))
        self.assertTrue(any("255.0 does not follow from 67109475 and 262144" in problem
                            for problem in self.problems()))
        self.path.write_text(before)

    def test_figures_that_cannot_be(self) -> None:
        for figure in ("   nan", "   inf", "0.0000", "-8.270"):
            before = self.path.read_text()
            self.rewrite(STDOUT.replace("8.2700", figure))
            problems = self.problems()
            self.assertTrue(any("positive" in problem for problem in problems), problems)
            self.path.write_text(before)

    def test_faster_than_the_card(self) -> None:
        # 2 x 3.201 GHz x 768 bytes are 4917 GB/s; 64 MiB + 611 less the 60 MiB that L2 holds are a
        # sixteenth of the input, so the factor for L2 decides: 5 x 4917 x 1.02.
        found = evidence.parse(self.path)
        self.assertAlmostEqual(evidence.memory_rate_gbs(found), 4916.7, delta=0.1)
        self.assertAlmostEqual(evidence.largest_rate_gbs(found, 67109475), 25075, delta=1)
        self.assertAlmostEqual(evidence.largest_rate_gbs(found, 2**30), 5327, delta=1)
        self.rewrite(STDOUT.replace("0.0989    83.62", "0.0026  3180.77"))
        self.caught("private (ms) of 'uniform bytes': 0.0026 means 25811 GB/s, and this card can "
                    "do 25075 at most on 67,109,475 bytes")
        self.rewrite(STDOUT.replace("67,109,475", "1,073,741,824")
                     .replace("0.0990 ms, 678 GB/s", "0.2000 ms, 5369 GB/s"))
        problems = self.problems()
        self.assertTrue(any("5369 GB/s means 5369" in problem for problem in problems), problems)

    def test_a_card_of_unknown_speed(self) -> None:
        self.rewrite(memory_clock_kHz="0")
        self.caught("nobody can say whether the figures are possible")

    def test_a_run_on_a_cpu(self) -> None:
        self.rewrite(STDOUT.replace("NVIDIA H200", "CPU (2 workers)"))
        self.assertIn("it ran on a CPU", self.problems())

    def test_an_output_that_the_transcript_no_longer_allows(self) -> None:
        self.rewrite(STDOUT.replace("sumBytes:", "sum of bytes:"))
        self.assertTrue(any("does not agree with expected/day29/histogram.txt" in problem
                            for problem in self.problems()))

    def test_too_few_runs_and_lost_stderr(self) -> None:
        with mock.patch.dict(check_evidence.LEAST_RUNS, {"histogram": 20}):
            self.caught("1 runs are too few; 20 are needed")
        self.rewrite(runs="20", regenerate="python3 tools/record_evidence.py day29/histogram.cu "
                                           "--runs 20")
        self.assertEqual(self.problems(), [])
        self.write("day29/histogram.cu", LESSON.replace(
            "// Run:   ./histogram\n", "// Run:   ./histogram\n// Stderr: device: {text}\n"))
        self.assertTrue(any("has stderr of 0 runs, and 20 were made" in problem
                            for problem in self.problems()))

    def test_missing_and_strange_files(self) -> None:
        for name in ("notes.txt", ".run-x.part", "run-2026-11-30-h200-nothing.svg"):
            self.write(f"day29/evidence/{name}", "x\n")
        status, said = self.call(lambda argv, root: check_evidence.main(
            argv, root, required=("histogram", "91_stable", "compute_sanitizer", "x-counters")))
        self.assertEqual(status, 1)
        for text in ("there is no evidence of 91_stable; make it where there is a GPU: "
                     "python3 tools/record_evidence.py 91_stable",
                     "python3 tools/compute_sanitizer.py --record",
                     "python3 tools/record_counters.py x", "notes.txt is neither",
                     ".run-x.part is neither", "run-2026-11-30-h200-nothing.svg is neither"):
            self.assertIn(text, said)
        self.assertNotIn("evidence of histogram;", said)

    def test_a_file_that_is_not_there_is_wrong_use(self) -> None:
        self.assertEqual(self.call(check_evidence.main, "/no/such/file")[0], 2)


class SeveralRuns(EvidenceCourse):
    def test_a_stderr_line_that_names_another_card(self) -> None:
        self.write("day29/histogram.cu", LESSON.replace(
            "// Run:   ./histogram\n", "// Run:   ./histogram\n// Stderr: device: {text}\n"))
        self.commit()
        (self.fakes / "program.sh").write_text(program(
            stderr="device: NVIDIA H200, compute capability 9.0: fine\n"))
        self.assertEqual(self.call(record_evidence.main, "histogram")[0], 0)
        [path] = self.evidence()
        self.assertEqual(check_evidence.check_file(path, self.root), [])
        path.write_text(path.read_text().replace("device: NVIDIA H200", "device: NVIDIA T4"))
        problems = check_evidence.check_file(path, self.root)
        self.assertTrue(any("stderr does not name NVIDIA H200" in x for x in problems), problems)


class Follows(unittest.TestCase):
    def test_quotients_to_the_printed_digits(self) -> None:
        for result, over, under, scale in (
                ("83.6", "8.27", "0.0989", 1), ("678", "67,109,475", "0.0990", 1e-6),
                ("256.0", "67,109,475", "262,144", 1), ("2.0x", "0.50 ms", "0.25 ms", 1)):
            self.assertTrue(check_evidence.follows(result, over, under, scale), result)
        for result, over, under, scale in (
                ("84.9", "8.27", "0.0989", 1), ("700", "67,109,475", "0.0990", 1e-6),
                ("256.1", "67,109,475", "262,144", 1), ("2.2x", "0.50 ms", "0.25 ms", 1)):
            self.assertFalse(check_evidence.follows(result, over, under, scale), result)

    def test_a_rule_that_finds_nothing_is_a_problem(self) -> None:
        found = evidence.Evidence(None, {}, STDOUT)
        rules = Rules(quotients=(("gain", "a", "b", 1.0),), lines=(("no such line", "a", "b", 1),))
        self.assertEqual(len(check_evidence.check_derived(found, rules)), 2)

    def test_the_race_stays_in_its_bounds(self) -> None:
        head = "        N     model     bound       min    median       max\n"
        good = "     1000       318       318        10        10        20\n"

        def problems(text: str) -> list[str]:
            return check_evidence.race_stays_in_bounds(evidence.Evidence(None, {}, text))

        self.assertEqual(problems(head + good + good), [])
        for old, new, text in (("318        10", "317        10", "bound 317 is not the model's"),
                               ("318        10", "1000        10", "bound 1000 is not the model"),
                               (" 20", "319", "max <= model"),
                               ("10        20", "10         9", "median <= max"),
                               (" 10        10", "  0        10", "not 1 <= min")):
            found = problems(head + good + good.replace(old, new))
            self.assertEqual(len(found), 1, (new, found))
            self.assertIn(text, found[0])
        self.assertEqual(len(problems(head)), 1)

    def test_the_bytes_that_a_sort_moves(self) -> None:
        for keys, size in (("1,000", 6e3), ("1000", 6e3), ("1 Mi", 6 * 2**20), ("4 Ki", 24576)):
            self.assertEqual(check_evidence.sorted_bytes({"keys": keys}), size)


class AtTheFloor(unittest.TestCase):
    """The rules of lesson 29.2, on figures that are rounded as the lesson rounds them."""

    def output(self, seed: int = 1) -> str:
        dice = random.Random(seed)
        times = {(size, name, kernel): size * 1e-6 / dice.uniform(600, 4500)
                 for size in (67109475, 1073742435) for name in FLOOR_INPUTS
                 for kernel in FLOOR_KERNELS}
        sweep = [(67109475, "uniform bytes", 0.040, 0.035, 0.020),
                 (16777368, "uniform bytes", 0.012, 0.0110, 0.0119),
                 (4194342, "all one byte", 0.0065, 0.007, 0.0059)]
        return floor_output(times, sweep,
                            "  uniform bytes  CUB 0, one table 16777368, column per lane 67109475\n"
                            "  all one byte   CUB 0, one table 0, column per lane 4194342")

    def problems(self, text: str) -> list[str]:
        found = evidence.Evidence(None, {
            "memory clock kHz": ["3201000"], "memory bus bits": ["6144"], "L2 bytes": ["62914560"],
        }, text)
        rules = check_evidence.RULES["histogram_at_the_floor"]
        return (check_evidence.check_derived(found, rules) + rules.extra(found)
                + check_evidence.check_possible(found, rules))

    def test_figures_that_follow(self) -> None:
        for seed in range(5):
            self.assertEqual(self.problems(self.output(seed)), [])

    def test_figures_that_do_not(self) -> None:
        text = self.output()
        row = next(line for line in text.splitlines() if "column per lane " in line)
        rate, share, ratio = row.split()[-3:]
        for old, new, column in ((rate, f"{float(rate) + 5:.1f}", "rate (GB/s)"),
                                 (share, f"{float(share) + 1:.1f}", "of floor (%)"),
                                 (ratio, f"{float(ratio) + 0.1:.2f}", "CUB ratio")):
            problems = self.problems(text.replace(row, row.replace(old, new)))
            self.assertTrue(problems and column in problems[0], problems)

    def test_who_wins(self) -> None:
        text = self.output()
        for old, new, name in (
                ("bytes  CUB 0,", "bytes  CUB 4194342,", "uniform bytes"),
                ("one table 16777368", "one table 0", "uniform bytes"),
                ("lane 67109475", "lane 4194342", "uniform bytes"),
                # What wins on one input says nothing about another.
                ("one table 0", "one table 16777368", "all one byte"),
                ("lane 4194342", "lane 67109475", "all one byte")):
            self.assertIn(old, text)
            problems = self.problems(text.replace(old, new))
            self.assertEqual(len(problems), 1, (new, problems))
            self.assertIn(name, problems[0])
        for old, new in (("one table 1", "one 1"), ("all one byte   CUB 0", "all bytes   CUB 0"),
                         ("  all one byte   CUB 0", "  CUB 0")):
            self.assertEqual(len(self.problems(text.replace(old, new))), 1, new)

    def test_the_closing_lines(self) -> None:
        text = self.output()
        said = re.search(r"takes (\S+) times.*\n.* to (\S+) % of\n.*lane to (\S+) %", text)
        for group, problem in ((1, "byte loads are said"), (2, "one table a block: said"),
                               (3, "column per lane: said")):
            begin, end = said.span(group)
            problems = self.problems(f"{text[:begin]}{float(said[group]) + 0.3:.1f}{text[end:]}")
            self.assertEqual(len(problems), 1, problems)
            self.assertIn(problem, problems[0])
        problems = self.problems(text.replace("floor, and a", "floor and a"))
        self.assertIn("were not found", problems[0])

    def test_faster_than_the_card_on_a_large_input(self) -> None:
        times = {(1073742435, name, kernel): 0.2 for name in FLOOR_INPUTS
                 for kernel in FLOOR_KERNELS}
        problems = self.problems(floor_output(times, [(4096, "x", 0.1, 0.1, 0.1)],
                                              "  x  CUB 0, one table 0, column per lane 0"))
        self.assertIn("means 5369 GB/s, and this card can do 5327 at most", problems[0])


class ThisCourse(unittest.TestCase):
    def test_what_is_required_is_there(self) -> None:
        self.assertEqual(check_evidence.missing(course.ROOT, check_evidence.REQUIRED), [])

    def test_nothing_else_lies_beside_it(self) -> None:
        self.assertEqual(check_evidence.strangers(course.ROOT), [])

    def test_every_file_is_well(self) -> None:
        for path in evidence.files():
            with self.subTest(path.name):
                self.assertEqual(check_evidence.check_file(path), [])

    def test_every_rule_and_every_required_name_belongs_to_a_lesson(self) -> None:
        stems = {lesson.stem for lesson in course.lessons()} | {"compute_sanitizer"}
        names = {*check_evidence.REQUIRED, *check_evidence.RULES, *check_evidence.LEAST_RUNS}
        names = {name.removesuffix("-counters") for name in names}
        self.assertEqual(sorted(names - stems), [])


if __name__ == "__main__":
    unittest.main()
