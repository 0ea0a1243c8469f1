"""Tests of tools/course.py: what is read from CMakeLists.txt and from the headers."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tools import course
from tools.tests.small_course import HELLO, SmallCourse, lesson_text


class RealCourse(unittest.TestCase):
    def test_every_lesson_parses_in_reading_order(self):
        sections = [tuple(map(int, lesson.section.split("."))) for lesson in course.lessons()]
        self.assertEqual(sections, sorted(sections))
        self.assertGreaterEqual(len(sections), 6)

    def test_the_six_programs_of_the_chapter_come_first(self):
        self.assertEqual([lesson.id for lesson in course.lessons()][:6],
                         ["40", "19", "41", "20", "42", "21"])

    def test_find_takes_id_stem_path_and_chapter(self):
        for text in ("19", "19_histogram_race_and_atomics",
                     "chapter07/19_histogram_race_and_atomics.cpp",
                     "19_histogram_race_and_atomics.cpp"):
            with self.subTest(text):
                self.assertEqual([lesson.id for lesson in course.find(text)], ["19"])
        for text in ("chapter07", "chapter07/", "7", "07"):
            with self.subTest(text):
                self.assertEqual({lesson.chapter for lesson in course.find(text)}, {"chapter07"})
        for text in ("999", "", "hist", "chapter"):
            with self.subTest(text), self.assertRaises(course.CourseError):
                course.find(text)

    def test_the_command_prints_and_fails_with_one_line(self):
        tool = [sys.executable, str(course.ROOT / "tools" / "course.py")]
        done = subprocess.run([*tool, "--field", "program", "40"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "histogram_cpu_baseline\n"))
        done = subprocess.run([*tool, "999"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1))


class Headers(unittest.TestCase):
    def parse(self, text: str | bytes, name: str = "10_hello.cpp") -> dict:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / name
            path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
            return course.parse_header(path)

    def test_all_fields(self):
        fields = self.parse(lesson_text("10_hello.cpp", HELLO, "7.3", "Some  title"))
        self.assertEqual(fields["section"], "7.3")
        self.assertEqual(fields["title"], "Some  title")
        self.assertEqual(fields["summary"].count("\n"), 2)
        self.assertEqual(fields["build"], "g++ -std=c++17 -Wall -Wextra -O2 10_hello.cpp -o hello")
        self.assertEqual((fields["run"], fields["program"]), ("./hello", "hello"))
        self.assertEqual((fields["stderr"], fields["language"]), ([], "c++"))

    def test_announced_stderr(self):
        text = lesson_text("10_hello.cu", HELLO, stderr="device: {text}")
        self.assertEqual(self.parse(text, "10_hello.cu")["stderr"], ["device: {text}"])

    def test_what_is_refused(self):
        good = lesson_text("10_hello.cpp", HELLO)
        build = "// Build: g++ -std=c++17 -Wall -Wextra -O2 10_hello.cpp -o hello\n"
        for why, text in {
            "no license": good.replace("SPDX", "spdx"),
            "one blank after the section": good.replace("7.1  A", "7.1 A"),
            "no build line": good.replace(build, ""),
            "two build lines": good.replace(build, build * 2),
            "no run line": good.replace("// Run:   ./hello\n", ""),
            "another program": good.replace("./hello", "./other"),
            "another file": good.replace("10_hello.cpp -o", "11_hello.cpp -o"),
            "another compiler": good.replace("// Build: g++", "// Build: clang++"),
            "no -o": good.replace(" -o hello", ""),
            "short summary": good.replace("// A third line of summary.\n", ""),
            "long summary": good.replace("// A third", "// more\n" * 7 + "// A third"),
            "text after the build line": good.replace("// Run:", "// And more.\n// Run:"),
            "open quote": good.replace("-O2 ", "-O2 'x "),
            "nothing at all": "",
            "no UTF-8": good.encode("utf-8").replace(b"A lesson", b"A \xff lesson"),
        }.items():
            with self.subTest(why), self.assertRaises(course.CourseError) as caught:
                self.parse(text)
            self.assertNotIn("\n", str(caught.exception))

    def test_a_directory_a_missing_file_and_a_loop(self):
        with tempfile.TemporaryDirectory() as directory:
            loop = Path(directory) / "loop.cpp"
            loop.symlink_to(loop)
            for path in (directory, Path(directory) / "none.cpp", loop):
                with self.subTest(path), self.assertRaises(course.CourseError):
                    course.parse_header(path)


class Lists(unittest.TestCase):
    def setUp(self):
        self.small = SmallCourse()
        self.addCleanup(self.small.close)

    def test_order_labels_and_defines(self):
        self.small.lines[1] = "add_lesson(chapter07/11_again.cpp LABELS gpu bench CPU_DEFINES A=1)"
        self.small.lines.reverse()
        self.small.write_list()
        found = course.lessons(self.small.root)
        self.assertEqual([lesson.id for lesson in found], ["11", "10"])
        self.assertEqual((found[0].labels, found[0].cpu_defines), (("gpu", "bench"), ("A=1",)))
        self.assertEqual(str(found[0].transcript), "expected/chapter07/11_again.txt")

    def test_what_is_refused(self):
        for why, line in {
            "no such file": "add_lesson(chapter07/12_none.cpp LABELS cpu)",
            "no label": "add_lesson(chapter07/10_hello.cpp)",
            "unknown label": "add_lesson(chapter07/10_hello.cpp LABELS fast)",
            "unknown word": "add_lesson(chapter07/10_hello.cpp NAME x LABELS cpu)",
            "listed twice": "add_lesson(chapter07/11_again.cpp LABELS cpu)",
            "several lines": "add_lesson(chapter07/10_hello.cpp\n  LABELS cpu)",
            "outside a chapter": "add_lesson(../10_hello.cpp LABELS cpu)",
        }.items():
            with self.subTest(why):
                self.small.lines[0] = line
                self.small.write_list()
                with self.assertRaises(course.CourseError) as caught:
                    course.lessons(self.small.root)
                self.assertNotIn("\n", str(caught.exception))

    def test_a_number_twice_and_a_section_of_another_chapter(self):
        self.small.add("chapter07/10_twice.cpp", HELLO)
        with self.assertRaisesRegex(course.CourseError, "same id 10"):
            course.lessons(self.small.root)
        self.small.lines.pop()
        self.small.add("chapter07/12_other.cpp", HELLO, section="8.1")
        with self.assertRaisesRegex(course.CourseError, "section 8.1"):
            course.lessons(self.small.root)


class Blocks(unittest.TestCase):
    def test_snippets_and_common_blocks(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "file.cu"
            path.write_text("a\n// snippet: one\nb\n  c\n// end snippet: one\n"
                            "// common: two\nd\n// end common: two\n// snippet: open\n")
            self.assertEqual(course.snippet(path, "one"), "b\n  c\n")
            self.assertEqual(course.common_block(path, "two"), "d\n")
            self.assertEqual(course.block_names(path, "snippet"), ["one", "open"])
            for name in ("open", "none"):
                with self.assertRaises(course.CourseError):
                    course.snippet(path, name)


if __name__ == "__main__":
    unittest.main()
