"""The runner of compute-sanitizer: what it must find, and that it skips for good reasons only."""

import os
import unittest
from unittest import mock

from tools import compute_sanitizer, course, evidence
from tools.check_transcript import Outcome
from tools.tests.evidence_course import EvidenceCourse

SANITIZER = """\
#!/bin/sh
case "$*" in *--version*) echo "Version 2025.3.1.0"; exit 0;; esac
tool=$2
say() {{ echo "========= COMPUTE-SANITIZER"; echo "$1"; exit $2; }}
[ -e "{fakes}/blind-$tool" ] && say "========= ERROR SUMMARY: 0 errors" 0
for last; do :; done
[ "$last" = "$tool" ] && say "========= fault
========= ERROR SUMMARY: 1 error" 86
[ "$last" = clean ] && [ -e "{fakes}/sees-ghosts" ] && say "========= ERROR SUMMARY: 2 errors" 86
[ "$last" != clean ] && [ -e "{fakes}/lesson-$tool" ] && say "$(cat "{fakes}/lesson-$tool")" 86
say "========= ERROR SUMMARY: 0 errors" 0
"""


class Sanitizer(EvidenceCourse):
    def setUp(self) -> None:
        super().setUp()
        self.fake("compute-sanitizer", SANITIZER.format(fakes=self.fakes))

    def test_a_clean_course_passes_and_can_be_recorded(self) -> None:
        summary = self.root.parent / "summary.txt"
        status, said = self.call(compute_sanitizer.main, "--record", "--summary", str(summary))
        self.assertEqual(status, 0, said)
        [path] = self.evidence()
        self.assertRegex(path.relative_to(self.root).as_posix(),
                         r"^common/evidence/run-[-\d]{10}-h200-compute_sanitizer\.txt$")
        found = evidence.parse(path)
        self.assertEqual(found.get("kind"), "sanitizer")
        self.assertEqual(found.stdout, summary.read_text())
        self.assertRegex(found.stdout, r"day29/histogram.cu( +clean){4} +HISTOGRAM_BYTES=1049187")
        self.assertIn("-DHISTOGRAM_BYTES=1049187", found.get("build line used"))
        for key in evidence.COMMON_KEYS:
            self.assertTrue(found.get(key), key)
        self.assertEqual(self.call(compute_sanitizer.main, "--record")[0], 1)

    def test_what_a_tool_finds_fails_and_is_not_recorded(self) -> None:
        for tool in compute_sanitizer.TOOLS:
            report = self.fakes / f"lesson-{tool}"
            report.write_text("========= Invalid access\n========= ERROR SUMMARY: 3 errors\n")
            status, said = self.call(compute_sanitizer.main, "--record")
            report.unlink()
            self.assertEqual((status, self.evidence()), (1, []), said)
            self.assertIn(f"day29/histogram.cu: {tool} found 3: Invalid access", said)

    def test_a_tool_that_does_not_see_what_was_planted_fails(self) -> None:
        for tool in compute_sanitizer.TOOLS:
            blind = self.fakes / f"blind-{tool}"
            blind.touch()
            status, said = self.call(compute_sanitizer.main)
            blind.unlink()
            self.assertEqual(status, 1, said)
            self.assertIn(f"{tool} does not find", said)

    def test_a_tool_that_sees_what_is_not_there_fails(self) -> None:
        (self.fakes / "sees-ghosts").touch()
        status, said = self.call(compute_sanitizer.main)
        self.assertEqual(status, 1)
        self.assertIn("a kernel without a fault is not clean", said)

    def test_one_tool_only_and_wrong_use(self) -> None:
        status, said = self.call(compute_sanitizer.main, "--tool", "racecheck", "histogram")
        self.assertEqual(status, 0, said)
        self.assertNotIn("memcheck", said)
        self.assertEqual(self.call(compute_sanitizer.main, "--tool", "nothing")[0], 2)
        self.assertEqual(self.call(compute_sanitizer.main, "no_such")[0], 2)
        self.assertEqual(self.call(compute_sanitizer.main, "--record", "histogram")[0], 2)

    def test_no_gpu_or_no_tool_is_a_skip_with_a_reason(self) -> None:
        (self.fakes / "probe.sh").write_text("echo 'no GPU: none here' >&2; exit 77\n")
        status, said = self.call(compute_sanitizer.main)
        self.assertEqual((status, said), (77, "compute_sanitizer.py: skipped: no GPU: none here\n"))
        with mock.patch.object(compute_sanitizer, "find_sanitizer", lambda: None):
            status, said = self.call(compute_sanitizer.main)
        self.assertEqual(status, 77)
        self.assertIn("there is no compute-sanitizer here", said)

    def test_evidence_needs_committed_sources(self) -> None:
        self.write("day29/histogram.cu", (self.root / "day29/histogram.cu").read_text() + "//\n")
        status, said = self.call(compute_sanitizer.main, "--record")
        self.assertEqual((status, self.evidence()), (1, []), said)
        self.assertIn("commit it first", said)


class Verdict(unittest.TestCase):
    def judge(self, text: str, status: int = 0, stopped: str = "") -> str:
        return compute_sanitizer.verdict("racecheck", Outcome(
            status=status, stdout=text.encode(), stopped=stopped))

    def test_only_a_summary_that_says_0_is_clean(self) -> None:
        clean = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
        self.assertEqual(self.judge("========= COMPUTE-SANITIZER\n" + clean), "clean")
        hazard = ("========= Error: Race reported between Write and Read\n"
                  "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n")
        self.assertEqual(self.judge(hazard),
                         "racecheck found 1: Error: Race reported between Write and Read")
        self.assertIn("found", self.judge(hazard.replace("1 error, 0 w", "0 errors, 1 w")))
        self.assertIn("found", self.judge(clean, status=compute_sanitizer.FOUND))

    def test_a_tool_that_did_not_work_is_not_clean(self) -> None:
        self.assertIn("no summary: it printed nothing", self.judge("all is well\n"))
        self.assertIn("Device not supported", self.judge("========= Device not supported\n"))

    def test_a_program_that_failed_is_not_clean(self) -> None:
        text = "========= ERROR SUMMARY: 0 errors\nwrong counts\n"
        self.assertEqual(self.judge(text, status=1),
                         "the program ended with status 1: wrong counts")
        self.assertIn("did not end", self.judge("", stopped="did not end within 300 s"))


class Course(unittest.TestCase):
    def test_every_size_belongs_to_a_lesson_and_to_a_macro_of_it(self) -> None:
        lessons = {lesson.stem: lesson for lesson in course.lessons()}
        for stem, defines in compute_sanitizer.SIZES.items():
            self.assertIn(stem, sorted(lessons))
            for define in defines:
                self.assertIn(f"#ifndef {define.split('=')[0]}", lessons[stem].file.read_text())

    def test_the_tool_is_found_beside_nvcc(self) -> None:
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            self.assertIsNone(compute_sanitizer.find_sanitizer())


if __name__ == "__main__":
    unittest.main()
