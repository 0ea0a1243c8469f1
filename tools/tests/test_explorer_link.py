"""Compiler Explorer links carry the lessons, byte for byte, in the form that the site reads.

    python3 -m unittest tools.tests.test_explorer_link

Whether the site accepts them cannot be tested without a network; the form was taken from its
documentation of `clientstate`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tools import course, explorer_link


def run_tool(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = explorer_link.main(list(arguments))
    return status, out.getvalue(), err.getvalue()


class Links(unittest.TestCase):
    def setUp(self) -> None:
        self.lessons = course.lessons()

    def test_every_link_decodes_to_its_source_byte_for_byte(self) -> None:
        for lesson in self.lessons:
            with self.subTest(lesson=lesson.id):
                link = explorer_link.full_link(lesson)
                self.assertRegex(link, r"\Ahttps://godbolt\.org/clientstate/[A-Za-z0-9_-]+\Z")
                session = explorer_link.decode(link)["sessions"][0]
                self.assertEqual(session["source"].encode(), lesson.file.read_bytes())
                self.assertEqual(session["filename"], lesson.path.name)

    def test_what_the_site_needs_is_there(self) -> None:
        for lesson in self.lessons:
            with self.subTest(lesson=lesson.id):
                state = explorer_link.decode(explorer_link.full_link(lesson))
                self.assertEqual(list(state), ["sessions"])
                session, = state["sessions"]
                self.assertEqual(list(session), ["id", "language", "filename", "source",
                                                 "compilers", "executors"])
                compiler, = session["compilers"]
                executor, = session["executors"]
                self.assertEqual(executor, {"arguments": "", "stdin": "", "compiler": compiler,
                                            "compilerOutputVisible": True})
                wanted = {"c++": "g142", "cuda": "nvcc130"}[session["language"]]
                self.assertEqual((compiler["id"], compiler["libs"]), (wanted, []))
                options = compiler["options"].split()
                self.assertNotIn("-o", options)
                architectures = [word for word in options if word.startswith("-arch")]
                expected = ["-arch=sm_75"] if lesson.language == "cuda" else []
                self.assertEqual(architectures, expected)

    def test_long_lessons_run_at_a_small_size_there(self) -> None:
        for lesson in self.lessons:
            for option in explorer_link.SMALL_SIZES.get(lesson.stem, []):
                macro = re.fullmatch(r"-D(\w+)=\d+u?", option)[1]
                self.assertRegex(course.read_text(lesson.file), rf"(?m)^#ifndef {macro}$")
                self.assertIn(option, explorer_link.options_for(lesson))
        stems = {lesson.stem for lesson in self.lessons if lesson.chapter == "day29"}
        self.assertLessEqual(stems, set(explorer_link.SMALL_SIZES))

    def test_the_readme_has_no_stale_link_and_none_is_too_long(self) -> None:
        readme = course.read_text(course.ROOT / "README.md")
        links = dict(re.findall(r"(?m)^\[ce-(\w+)\]: (\S+)$", readme))
        for lesson in self.lessons:
            with self.subTest(lesson=lesson.id):
                link = explorer_link.best_link(lesson)
                self.assertEqual(links.get(lesson.id), link,
                                 "stale; `python3 tools/sync_docs.py` renews it")
                if link:
                    self.assertLessEqual(len(link), explorer_link.MAX_LENGTH)
        self.assertLessEqual(set(links), {lesson.id for lesson in self.lessons})

    def test_a_text_that_no_link_can_hold_is_written_out(self) -> None:
        lesson = self.lessons[0]
        with mock.patch.object(explorer_link, "MAX_LENGTH", 100):
            status, out, err = run_tool(lesson.id)
        self.assertEqual(status, 0)
        self.assertEqual(out, course.read_text(lesson.file))
        self.assertIn("characters", err)
        self.assertIn("g142", err)

    def test_a_long_lesson_goes_without_its_comments(self) -> None:
        lesson = self.lessons[0]
        limit = len(explorer_link.full_link(lesson)) - 1
        with mock.patch.object(explorer_link, "MAX_LENGTH", limit):
            status, out, err = run_tool(lesson.id)
        self.assertEqual(status, 0)
        self.assertIn("without", err)
        source = explorer_link.decode(out.strip())["sessions"][0]["source"]
        self.assertEqual(source, explorer_link.short_form(lesson, course.read_text(lesson.file)))

    def test_wrong_use(self) -> None:
        for arguments in (["no_such_lesson"], ["chapter07", "--text"]):
            status, out, err = run_tool(*arguments)
            self.assertEqual((status, out), (2, ""))
            self.assertEqual(err.count("\n"), 1)


class WithoutComments(unittest.TestCase):
    def check(self, source: str, wanted: str) -> None:
        self.assertEqual(explorer_link.without_comments(source), wanted)

    def test_comments_go_and_everything_else_stays(self) -> None:
        self.check("int a;  // one\n\n// two\nint b; /* three\n four */ int c;\n",
                   "int a;\nint b;   int c;\n")
        self.check('puts("// no comment /* nor this */");  // but this\n',
                   'puts("// no comment /* nor this */");\n')
        self.check('puts(R"(// raw\n\n/* text */)");\n', 'puts(R"(// raw\n\n/* text */)");\n')
        self.check("char q = '\"'; // quote\nchar s = '\\'';\n",
                   "char q = '\"';\nchar s = '\\'';\n")
        self.check("int n = 1'000'000; // digits\nint m = 0x1'0;\n",
                   "int n = 1'000'000;\nint m = 0x1'0;\n")
        self.check("int a = b /* per */ / c;\n", "int a = b   / c;\n")

    def test_the_compiler_removes_the_same_comments(self) -> None:
        if not shutil.which("g++"):
            self.skipTest("g++ is not installed; sudo apt-get install g++")
        for lesson in course.lessons():
            with self.subTest(lesson=lesson.id):
                preprocessed = subprocess.run(
                    ["g++", "-x", "c++", "-fpreprocessed", "-dD", "-E", "-P", lesson.file],
                    capture_output=True, text=True, encoding="utf-8", timeout=60, check=True)
                short = explorer_link.without_comments(course.read_text(lesson.file))
                self.assertEqual(short.split(), preprocessed.stdout.split())


class ShortForms(unittest.TestCase):
    """The long campaigns build every lesson without its comments, others the longest C++ one."""

    def test_they_compile_and_print_the_same(self) -> None:
        every = course.lessons()
        longest = max((lesson for lesson in every if lesson.language == "c++"),
                      key=lambda lesson: lesson.file.stat().st_size)
        for lesson in every if os.environ.get("LESSONS_LONG") else [longest]:
            compiler = "g++" if lesson.language == "c++" else "nvcc"
            with self.subTest(lesson=lesson.id):
                if not shutil.which(compiler):
                    self.skipTest(f"{compiler} is not installed")
                source = course.read_text(lesson.file)
                outputs = [self.build_and_run(lesson, compiler, text)
                           for text in (source, explorer_link.short_form(lesson, source))]
                self.assertEqual(outputs[0], outputs[1])

    def build_and_run(self, lesson: course.Lesson, compiler: str, source: str) -> tuple:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, lesson.path.name).write_text(source, encoding="utf-8")
            flags = [*course.build_flags(lesson), *explorer_link.SMALL_SIZES.get(lesson.stem, [])]
            built = subprocess.run([compiler, *flags, lesson.path.name, "-o", "program"],
                                   cwd=folder, capture_output=True, text=True, timeout=300)
            self.assertEqual((built.returncode, built.stderr), (0, ""))
            ran = subprocess.run(["./program"], cwd=folder, capture_output=True, text=True,
                                 timeout=120)
            # What is measured differs from run to run; the status and what is exact may not.
            exact = "" if "bench" in lesson.labels else ran.stdout
            return ran.returncode, exact


if __name__ == "__main__":
    unittest.main()
