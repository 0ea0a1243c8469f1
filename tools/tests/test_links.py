"""What the pages point at exists: links, anchors, pictures, files, tools and their options.

    python3 -m unittest tools.tests.test_links

Addresses on the web are not followed: the tests need no network.
"""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import sys
import unittest
import xml.etree.ElementTree

from tools import course, sync_docs

ROOT = course.ROOT
FOLDERS = "chapter07|day29|common|tools|expected"
LINK = re.compile(r"!?\[[^\]\[]*\](?:\(([^()\s]+)\)|\[([^\]]+)\])")
DEFINITION = re.compile(r"(?m)^\[([^\]]+)\]: \S+$")
PATH = re.compile(rf"(?<![\w./-])(?:\.\./)?(?:{FOLDERS})/[\w./*-]*[\w/*]")


def without_fences(text: str) -> str:
    """The page without its code blocks; the lines stay where they are."""
    kept, inside = [], False
    for line in text.split("\n"):
        fence = sync_docs.FENCE.match(line) is not None
        kept.append("" if inside or fence else line)
        inside ^= fence
    return "\n".join(kept)


def shell_lines(text: str) -> list[str]:
    """The commands of a page: lines of its `sh` blocks, and whole commands within a sentence."""
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```$", text)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"`((?:python3|sh) [^`]+)`", without_fences(text))
    return [line.split("  #")[0].strip() for line in lines if line.strip()]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub makes of the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"(?m)^#{1,6} +(.+?)\s*$", without_fences(text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number, name = 0, slug
        while name in found:
            number += 1
            name = f"{slug}-{number}"
        found.add(name)
    return found


@functools.lru_cache(maxsize=None)
def help_of(tool: str, *words: str) -> str:
    ran = subprocess.run([sys.executable, tool, *words, "--help"], cwd=ROOT, text=True,
                         capture_output=True, timeout=60)
    return ran.stdout if ran.returncode == 0 else ""


class Pages(unittest.TestCase):
    def setUp(self) -> None:
        self.pages = {page: course.read_text(page) for page in sync_docs.pages(ROOT)}
        self.assertTrue(self.pages)

    def test_links_anchors_and_pictures(self) -> None:
        for page, text in self.pages.items():
            name = page.relative_to(ROOT)
            prose = re.sub(r"`[^`\n]*`", "", without_fences(text))
            defined = set(DEFINITION.findall(prose))
            for target, reference in LINK.findall(prose):
                with self.subTest(page=str(name), link=target or reference):
                    if reference:
                        self.assertIn(reference, defined, "no such link is defined below")
                        continue
                    if re.match(r"https?://", target):
                        continue
                    path, _, anchor = target.partition("#")
                    file = (page.parent / path).resolve() if path else page
                    self.assertTrue(file.exists(), f"there is no {path}")
                    self.assertTrue(file.is_relative_to(ROOT), f"{path} leaves the repository")
                    if anchor:
                        self.assertIn(anchor, anchors(course.read_text(file)), "no such heading")

    def test_files_that_the_text_names(self) -> None:
        for page, text in self.pages.items():
            for match in PATH.finditer(sync_docs.MARKER.sub("", text)):
                path = match[0].removeprefix("../")
                with self.subTest(page=str(page.relative_to(ROOT)), path=path):
                    if "YYYY" in path:  # the form of a name, not a file
                        continue
                    found = any(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()
                    built = path.startswith(("chapter07/evidence", "day29/evidence"))
                    self.assertTrue(found or (built and path.endswith("/")), f"there is no {path}")

    def test_commands_name_tools_and_options_that_exist(self) -> None:
        checked = 0
        for page, text in self.pages.items():
            for line in shell_lines(text):
                for command in re.split(r"&&|\|\||;|\|", line):
                    with self.subTest(page=str(page.relative_to(ROOT)), command=command.strip()):
                        checked += self.check_command(command.strip())
        self.assertGreater(checked, 5, "too few commands were found: is the search broken?")

    def check_command(self, command: str) -> int:
        words = shlex.split(command, comments=True)
        while words and re.fullmatch(r"\w+=.*", words[0]):
            words.pop(0)
        if not words:
            return 0
        if words[0] in ("python3", "sh") and len(words) > 1 and not words[1].startswith("-"):
            tool = words[1].removeprefix("../")
            self.assertTrue((ROOT / tool).is_file(), f"there is no {tool}")
            if words[0] == "python3":
                self.check_options(tool, words[2:])
            return 1
        if words[0] in ("g++", "nvcc", "clang++"):
            for word in words:
                if word.endswith((".cpp", ".cu")):
                    places = [word, f"chapter07/{word}", f"day29/{word}"]
                    self.assertTrue(any((ROOT / place).is_file() for place in places),
                                    f"no lesson is called {word}")
            return 1
        return 0

    def check_options(self, tool: str, words: list[str]) -> None:
        if "--" in words:
            words = words[:words.index("--")]
        text = help_of(tool)
        self.assertTrue(text, f"{tool} has no --help")
        if words and re.fullmatch("[a-z]+", words[0]) and words[0] in text:  # a subcommand
            text += help_of(tool, words[0])
        for word in words:
            if word.startswith("--"):
                self.assertRegex(text, rf"{re.escape(word.partition('=')[0])}\b",
                                 f"{tool} has no such option")


class Pictures(unittest.TestCase):
    def test_each_is_readable_in_light_and_dark_and_used(self) -> None:
        pictures = sorted(ROOT.glob("*/images/*.svg"))
        self.assertTrue(pictures)
        pages = "".join(course.read_text(page) for page in sync_docs.pages(ROOT))
        for picture in pictures:
            with self.subTest(picture=picture.name):
                text = course.read_text(picture)
                xml.etree.ElementTree.fromstring(text)
                for part in ("<title>", "<desc>", "prefers-color-scheme: dark", "viewBox"):
                    self.assertIn(part, text)
                self.assertTrue(f"images/{picture.name})" in pages, "no page shows it")


class TheSearchItself(unittest.TestCase):
    def test_anchors_are_made_as_on_github(self) -> None:
        text = "# A b\n## 7.2 C++, `x_y` (two)!\n## A b\n```\n# no\n```\n"
        self.assertEqual(anchors(text), {"a-b", "72-c-x_y-two", "a-b-1"})

    def test_commands_are_found(self) -> None:
        text = "```sh\npython3 a.py  # why\n\nls\n```\nand `python3 b.py --x`.\n```text\nno\n```\n"
        self.assertEqual(shell_lines(text), ["python3 a.py", "ls", "python3 b.py --x"])

    def test_wrong_names_are_found(self) -> None:
        case = Pages()
        for command in ("python3 tools/no_such_tool.py", "sh tools/no_such.sh",
                        "python3 tools/sync_docs.py --no-such-option", "g++ no_such.cpp -o x"):
            with self.subTest(command=command), self.assertRaises(AssertionError):
                case.check_command(command)


if __name__ == "__main__":
    unittest.main()
