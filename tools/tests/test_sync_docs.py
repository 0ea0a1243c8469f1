"""The pages quote code, transcripts and evidence; nothing in them is a copy made by hand.

    python3 -m unittest tools.tests.test_sync_docs
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tools import course, evidence, sync_docs

LESSON = """\
// SPDX-License-Identifier: MIT
#include <cuda_runtime.h>

// snippet: count
  // One counter.
  int count = 0;
// end snippet: count

int helper(int x);

// Adds one.
// Twice if asked.
template <class T>
int helper(int x) {
  if (x) {
    return 2;
  }
  return 1;
}

int main() { return helper(0); }
"""

FIELDS = [("source", "day29/demo.cu"), ("gpu", "NVIDIA Test 1")]
RUN = evidence.render(FIELDS, "first line\ntotal 7\nlast line\n", ["device: one\n", "two\n"])


class Pages(unittest.TestCase):
    """Each test works on a small repository of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        self.put("day29/demo.cu", LESSON)
        self.put("expected/day29/demo.txt", "one \n\ntwo\nthree\n")

    def put(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def run_tool(self, *arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = sync_docs.main(["--root", str(self.root), *arguments])
        return status, out.getvalue(), err.getvalue()

    def page_after_sync(self, marker: str) -> str:
        page = self.put("README.md", f"before\n\n{marker}\n<!-- end -->\n\nafter\n")
        status, _, err = self.run_tool()
        self.assertEqual((status, err), (0, ""))
        return course.read_text(page)

    def error_for(self, text: str) -> str:
        page = self.put("README.md", text)
        status, _, err = self.run_tool()
        self.assertEqual(status, 2)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertEqual(course.read_text(page), text, "a page with an error must stay as it was")
        return err

    def test_named_snippet_loses_its_indentation(self) -> None:
        text = self.page_after_sync("<!-- snippet: day29/demo.cu count -->")
        self.assertEqual(text, "before\n\n<!-- snippet: day29/demo.cu count -->\n```cuda\n"
                               "// One counter.\nint count = 0;\n```\n<!-- end -->\n\nafter\n")

    def test_function_comes_with_its_comment_and_template_line(self) -> None:
        text = self.page_after_sync("<!-- snippet: day29/demo.cu helper -->")
        self.assertIn("```cuda\n// Adds one.\n// Twice if asked.\ntemplate <class T>\n"
                      "int helper(int x) {\n", text)
        self.assertIn("  return 1;\n}\n```\n", text)
        self.assertNotIn("int main", text)

    def test_transcript_whole_and_in_part(self) -> None:
        self.assertIn("```text\none\n\ntwo\nthree\n```\n",
                      self.page_after_sync("<!-- transcript: day29/demo.txt -->"))
        self.assertIn("```text\ntwo\n```\n",
                      self.page_after_sync('<!-- transcript: day29/demo.txt two two -->'))
        self.assertIn("```text\ntwo\nthree\n```\n",
                      self.page_after_sync('<!-- transcript: day29/demo.txt "two" -->'))

    def test_evidence_takes_the_newest_run_and_names_it(self) -> None:
        marker = "<!-- evidence: day29/demo.cu total total -->"
        self.assertIn(sync_docs.NO_RUN, self.page_after_sync(marker))
        self.put("day29/evidence/run-2026-01-02-test-demo.txt", RUN)
        self.put("day29/evidence/run-2026-03-01-test-demo.txt",
                 evidence.render(FIELDS, "total 8\n", ["device: three\n"]))
        text = self.page_after_sync(marker)
        self.assertIn("Recorded on 2026-03-01, NVIDIA Test 1: [run-2026-03-01-test-demo.txt]"
                      "(day29/evidence/run-2026-03-01-test-demo.txt)\n", text)
        self.assertIn("```text\ntotal 8\n```\n", text)
        self.assertIn("```text\ndevice: three\n```\n",
                      self.page_after_sync("<!-- stderr: day29/demo.cu -->"))

    def test_counters_and_pictures_are_those_of_the_newest_record(self) -> None:
        counters = "<!-- counters: day29/demo.cu total -->"
        plot = '<!-- plot: day29/demo.cu "Bars" -->'
        for marker in (counters, plot):
            self.assertIn(sync_docs.NO_RUN, self.page_after_sync(marker))
        for date in ("2026-01-02", "2026-03-01"):
            self.put(f"day29/evidence/run-{date}-test-demo.txt", RUN)
            self.put(f"day29/evidence/run-{date}-test-demo-counters.txt",
                     evidence.render(FIELDS, f"total of {date}\n"))
        self.assertIn("```text\ntotal of 2026-03-01\n```\n", self.page_after_sync(counters))
        self.assertIn("there is no run-2026-03-01-test-demo.svg",
                      self.error_for(f"{plot}\n<!-- end -->\n"))
        self.put("day29/evidence/run-2026-03-01-test-demo.svg", "<svg/>")
        self.assertIn("![Bars](day29/evidence/run-2026-03-01-test-demo.svg)\n",
                      self.page_after_sync(plot))

    def test_a_command_runs_only_when_asked(self) -> None:
        marker = "<!-- run: python3 print.py | two | six -->"
        self.put("print.py", f"print('one\\ntwo at 0x12ab {self.root}/x\\ntwo\\ntwo\\nsix')\n")
        page = self.put("README.md", f"{marker}\n<!-- end -->\n")
        self.assertEqual(self.run_tool("--check")[0], 1, "a block that was never run must fail")
        self.assertEqual(self.run_tool("--runs")[0], 0)
        text = course.read_text(page)
        self.assertIn("```text\ntwo x\ntwo\nsix\n```\n", text)
        self.put("print.py", "print('two')\n")
        self.assertEqual(self.run_tool("--check"), (0, "", ""))
        self.assertEqual(self.run_tool("--check", "--runs")[0], 1)
        self.put("print.py", "print('none')\n")
        self.assertEqual(self.run_tool("--runs")[0], 2)
        self.assertEqual(course.read_text(page), text)

    def test_check_reports_each_difference_and_changes_nothing(self) -> None:
        stale = ("<!-- snippet: day29/demo.cu count -->\n```cuda\nint count = 1;\n```\n"
                 "<!-- end -->\n\n<!-- transcript: day29/demo.txt -->\n<!-- end -->\n")
        page = self.put("README.md", stale)
        status, out, _ = self.run_tool("--check")
        self.assertEqual(status, 1)
        self.assertEqual(out.splitlines()[:2], [
            "README.md:1: snippet: day29/demo.cu count differs from its source",
            "README.md:7: transcript: day29/demo.txt differs from its source"])
        self.assertEqual(course.read_text(page), stale)
        self.assertEqual(self.run_tool()[0], 0)
        self.assertEqual(self.run_tool("--check"), (0, "", ""))

    def test_each_kind_of_difference_is_seen(self) -> None:
        good = self.page_after_sync("<!-- transcript: day29/demo.txt -->")
        for old, new in (("two\n", ""), ("two\n", "two\nmore\n"), ("one", "on"),
                         ("one\n\ntwo", "two\n\none"), ("```text", "```")):
            self.put("README.md", good.replace(old, new, 1))
            self.assertEqual(self.run_tool("--check")[0], 1, (old, new))

    def test_a_changed_source_is_seen(self) -> None:
        self.page_after_sync("<!-- snippet: day29/demo.cu count -->")
        self.put("day29/demo.cu", LESSON.replace("count = 0", "count = 5"))
        self.assertEqual(self.run_tool("--check")[0], 1)

    def test_a_marker_in_a_code_fence_is_an_example(self) -> None:
        text = "```\n<!-- snippet: day29/demo.cu count -->\n<!-- end -->\n```\n"
        page = self.put("README.md", text)
        self.assertEqual(self.run_tool()[0], 0)
        self.assertEqual(course.read_text(page), text)

    def test_errors_name_the_place(self) -> None:
        for text, part in (
                ("\n<!-- snippet: day29/demo.cu count -->\n", "README.md:2: this marker has no"),
                ("x\n<!-- end -->\n", "README.md:2: '<!-- end -->' without a marker"),
                ("<!-- snipet: day29/demo.cu count -->\n<!-- end -->\n", "not a known marker"),
                ("<!-- snippet: day29/demo.cu none -->\n<!-- end -->\n", "nor one function"),
                ("<!-- snippet: day29/demo.cu -->\n<!-- end -->\n", "needs a file and a name"),
                ("<!-- snippet: day29/no.cu x -->\n<!-- end -->\n", "cannot be read"),
                ("<!-- transcript: day29/no.txt -->\n<!-- end -->\n", "cannot be read"),
                ("<!-- transcript: day29/demo.txt four -->\n<!-- end -->\n", "no line with 'four'"),
                ("<!-- evidence: day29/no.cu -->\n<!-- end -->\n", "must be a lesson"),
                ("<!-- lessons: list -->\n<!-- end -->\n", "needs 'table', 'links'")):
            with self.subTest(text=text), mock.patch.object(course, "lessons", lambda root: []):
                self.assertIn(part, self.error_for(text))

    def test_an_interrupted_write_leaves_the_old_page_and_no_litter(self) -> None:
        page = self.put("README.md", "<!-- transcript: day29/demo.txt -->\n<!-- end -->\n")
        before = sorted(path.name for path in self.root.iterdir())
        with mock.patch("os.replace", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                self.run_tool()
        self.assertEqual(course.read_text(page).count("\n"), 2)
        self.assertEqual(sorted(path.name for path in self.root.iterdir()), before)


class ThisCourse(unittest.TestCase):
    def test_every_page_is_up_to_date(self) -> None:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = sync_docs.main(["--check"])
        self.assertEqual(status, 0, f"\n{out.getvalue()}")


class QuotedRuns(unittest.TestCase):
    """Part of the long campaigns only: builds and runs lessons under the race detector."""

    def test_the_output_that_pages_quote_still_comes(self) -> None:
        if not shutil.which("g++"):
            self.skipTest("g++ is not installed; sudo apt-get install g++")
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = sync_docs.main(["--check", "--runs"])
        self.assertEqual(status, 0, f"\n{out.getvalue()}")


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: str | None):
    classes = [Pages, ThisCourse] + ([QuotedRuns] if os.environ.get("LESSONS_LONG") else [])
    return unittest.TestSuite(loader.loadTestsFromTestCase(test) for test in classes)


if __name__ == "__main__":
    unittest.main()
