"""The shape of the repository: nothing is missing, nothing lies about, all files are clean."""

from __future__ import annotations

import re
import shutil
import subprocess
import unittest
from pathlib import Path

from tools import check_transcript, course
from tools.course import ROOT

DIRECTORIES = {"chapter07", "day29", "common", "expected", "tools", ".ci"}
FILES = {"CMakeLists.txt", "README.md", "REVIEW-PROCESS.md", "LICENSE", "CMakePresets.json",
         ".clang-format", ".editorconfig", ".gitattributes", ".gitignore", ".clang-tidy"}
OPTIONAL = {".clang-tidy"}
IGNORED = re.compile(r"\.git|build(-.*)?|__pycache__|\..*_cache")
TEXT = {".py", ".sh", ".cmake", ".json", ".md", ".h", ".cuh", ".hpp", ".cpp", ".cu", ".txt",
        ".svg", ""}
COMMANDS = ("sh tools/setup.sh && python3 tools/lessons.py run",
            "sh tools/setup.sh && python3 tools/lessons.py test")


def files(root: Path = ROOT) -> list[Path]:
    """All files of the course, relative to the root; those that git ignores are left out."""
    if (root / ".git").exists() and shutil.which("git"):
        done = subprocess.run(["git", "ls-files", "-z", "--cached", "--others",
                               "--exclude-standard"], cwd=root, capture_output=True)
        if done.returncode == 0:
            names = done.stdout.decode("utf-8", "surrogateescape").split("\0")
            return sorted({Path(name) for name in names if name and (root / name).is_file()})
    found = []
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if IGNORED.fullmatch(relative.parts[0]) or "__pycache__" in relative.parts:
            continue
        if path.is_file():
            found.append(relative)
    return found


def is_transcript(path: Path) -> bool:
    return path.parts[0] == "expected"


def transcript_problems(root: Path = ROOT) -> list[str]:
    """Orphans and gaps in expected/, and transcripts that cannot be used."""
    wanted = {lesson.transcript for lesson in course.lessons(root)}
    there = {path for path in files(root) if is_transcript(path)}
    problems = [f"{path}: belongs to no lesson" for path in sorted(there - wanted)]
    problems += [f"{path}: is missing" for path in sorted(wanted - there)]
    for path in sorted(there & wanted):
        text = course.read_text(root / path)
        if not text.endswith("\n"):
            problems.append(f"{path}: does not end with a newline")
        try:
            check_transcript.parse_transcript(text)
        except check_transcript.TranscriptError as error:
            problems.append(f"{path}: {error}")
    return problems


def unlisted_lessons(root: Path = ROOT) -> list[str]:
    listed = {lesson.path for lesson in course.lessons(root)}
    return [str(path) for path in files(root)
            if re.fullmatch(r"(chapter|day)\d\d", path.parts[0]) and len(path.parts) == 2
            and path.suffix in (".cpp", ".cu") and path not in listed]


class Shape(unittest.TestCase):
    def test_the_top_level_holds_exactly_what_is_meant(self):
        there = {path.parts[0] for path in files()}
        self.assertEqual(there - DIRECTORIES - FILES, set())
        self.assertEqual((DIRECTORIES | FILES) - OPTIONAL - there, set())

    def test_every_lesson_is_listed(self):
        self.assertEqual(unlisted_lessons(), [])

    def test_transcripts(self):
        self.assertEqual(transcript_problems(), [])

    def test_reading_order_is_that_of_the_sections(self):
        sections = [tuple(map(int, lesson.section.split("."))) for lesson in course.lessons()]
        self.assertEqual(sections, sorted(sections))

    def test_lessons_include_no_header_of_ours(self):
        for lesson in course.lessons():
            with self.subTest(lesson.id):
                text = course.read_text(lesson.file)
                self.assertEqual(re.findall(r'#\s*include\s*".*"', text), [])


class Cleanliness(unittest.TestCase):
    def test_no_carriage_return_no_tab_no_trailing_blank(self):
        for path in files():
            if path.suffix not in TEXT:
                continue
            data = (ROOT / path).read_bytes()
            with self.subTest(str(path)):
                self.assertNotIn(b"\r", data)
                if is_transcript(path) or "evidence" in path.parts:
                    continue  # Printed by programs, and kept as printed.
                self.assertTrue(data.endswith(b"\n") or not data, "no newline at the end")
                self.assertFalse(data.endswith(b"\n\n"), "an empty line at the end")
                self.assertNotIn(b"\t", data)
                bad = [number for number, line in enumerate(data.split(b"\n"), start=1)
                       if line.endswith(b" ")]
                self.assertEqual(bad, [], "lines with a trailing blank")

    def test_lines_have_at_most_100_columns(self):
        for path in files():
            if path.suffix in (".py", ".sh", ".cmake", ".h", ".cuh", ".cpp", ".cu", ".hpp"):
                lines = [re.sub(r"^// (Build: |\$ ).*", "", line) for line in  # One line each.
                         (ROOT / path).read_text(encoding="utf-8").split("\n")]
                with self.subTest(str(path)):
                    self.assertEqual([number for number, line in enumerate(lines, start=1)
                                      if len(line) > 100 and "http" not in line], [])

    def test_nothing_is_left_to_do(self):
        mark = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
        for path in files():
            if path.suffix in TEXT:
                with self.subTest(str(path)):
                    self.assertIsNone(mark.search((ROOT / path).read_text(encoding="utf-8")))


    def test_git_ignores_what_the_build_lines_make_and_nothing_else(self):
        def git(*arguments: str, given: str = "") -> list[str]:
            return subprocess.run(["git", *arguments], cwd=ROOT, input=given, capture_output=True,
                                  text=True).stdout.split()

        if not (ROOT / ".git").exists() or not shutil.which("git") or not git("rev-parse", "HEAD"):
            self.skipTest("git cannot be asked about this copy of the course")
        programs = [f"{lesson.chapter}/{lesson.run.split()[0].removeprefix('./')}"
                    for lesson in course.lessons()]
        self.assertEqual(git("check-ignore", "--stdin", given="\n".join(programs)), programs)
        self.assertEqual(git("ls-files", "--ignored", "--cached",
                             "--exclude-per-directory=.gitignore"), [])


class Commands(unittest.TestCase):
    def test_continuous_integration_calls_the_one_command(self):
        text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
        self.assertIn("python3 tools/lessons.py test", text)
        self.assertTrue((ROOT / ".ci" / "run").stat().st_mode & 0o100)

    def test_the_readme_names_the_two_commands(self):
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        for command in COMMANDS:
            with self.subTest(command):
                self.assertIn(command, text)


class MustFail(unittest.TestCase):
    def setUp(self):
        from tools.tests.small_course import SmallCourse
        self.small = SmallCourse()
        self.addCleanup(self.small.close)

    def test_a_good_course_has_no_problems(self):
        self.assertEqual(transcript_problems(self.small.root), [])
        self.assertEqual(unlisted_lessons(self.small.root), [])

    def test_an_orphan(self):
        for name in ("expected/chapter07/12_none.txt", "expected/notes.md",
                     "expected/chapter07/10_hello.txt.orig"):
            with self.subTest(name):
                self.small.write(name, "x\n")
                self.assertEqual(transcript_problems(self.small.root),
                                 [f"{name}: belongs to no lesson"])
                (self.small.root / name).unlink()

    def test_a_missing_transcript(self):
        (self.small.root / "expected/chapter07/10_hello.txt").unlink()
        self.assertEqual(transcript_problems(self.small.root),
                         ["expected/chapter07/10_hello.txt: is missing"])

    def test_an_unlisted_lesson(self):
        self.small.write("chapter07/12_more.cu", "int main() {}\n")
        self.assertEqual(unlisted_lessons(self.small.root), ["chapter07/12_more.cu"])

    def test_a_bad_mask_and_no_newline(self):
        self.small.write("expected/chapter07/10_hello.txt", "{{.*}}")
        self.assertEqual(len(transcript_problems(self.small.root)), 2)


if __name__ == "__main__":
    unittest.main()
