"""The pictures: their data is the evidence, figure by figure."""

import importlib.util
import json
import re
import struct
import sys
import unittest
import zlib
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

from tools import course, evidence, plot_evidence, record_evidence
from tools.evidence import EvidenceError
from tools.tests.evidence_course import (FLOOR_INPUTS, FLOOR_KERNELS, STDOUT, EvidenceCourse,
                                         floor_output)

NO_MATPLOTLIB = "no matplotlib; install it with 'pip install matplotlib'"
HAVE_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def svg_parts(path: Path) -> tuple[dict, list[str]]:
    """The data that an SVG carries, and all text that it shows."""
    tree = ElementTree.parse(path)
    [text] = [node.text for node in tree.iter() if node.tag.endswith("}description")]
    shown = ["".join(node.itertext()).strip() for node in tree.iter() if node.tag.endswith("}text")]
    return json.loads(text), shown


def png_description(path: Path) -> dict:
    """The data that a PNG carries, from its text chunks."""
    data = path.read_bytes()
    at = 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        chunk = data[at + 8:at + 8 + length]
        if kind == b"tEXt" and chunk.startswith(b"Description\0"):
            return json.loads(chunk.partition(b"\0")[2].decode("latin-1"))
        if kind == b"iTXt" and chunk.startswith(b"Description\0"):
            packed, rest = chunk[12], chunk[14:].split(b"\0", 2)[2]
            return json.loads((zlib.decompress(rest) if packed else rest).decode("utf-8"))
        at += 12 + length
    raise AssertionError(f"{path.name} carries no data")


def picture_problems(path: Path) -> list[str]:
    """How the pictures beside a file of evidence differ from it."""
    found = evidence.parse(path)
    panels = plot_evidence.panels_of(found)
    wanted = json.loads(plot_evidence.description(found, panels))
    renew = f"draw it: python3 tools/plot_evidence.py {found.get('source')}"
    problems = []
    for kind in (".svg", ".png"):
        picture = path.with_suffix(kind)
        if not picture.is_file():
            problems.append(f"there is no {picture.name}; {renew}")
        elif kind == ".png" and png_description(picture) != wanted:
            problems.append(f"{picture.name} was drawn from other figures; {renew}")
        elif kind == ".svg":
            data, shown = svg_parts(picture)
            if data != wanted:
                problems.append(f"{picture.name} was drawn from other figures; {renew}")
            figures = [text for panel in panels for times in panel.kernels.values()
                       for text in times]
            figures += [text for panel in panels for text in panel.floor]
            for figure in set(figures):
                if shown.count(figure) < figures.count(figure):
                    problems.append(f"{picture.name} does not show {figure}; {renew}")
    return problems


class Drawing(EvidenceCourse):
    def setUp(self) -> None:
        super().setUp()
        self.assertEqual(self.call(record_evidence.main, "histogram")[0], 0)
        [self.path] = self.evidence()

    def test_the_data_are_the_printed_figures(self) -> None:
        [panel] = plot_evidence.panels_of(evidence.parse(self.path))
        self.assertEqual(panel.inputs, ["uniform bytes", "all one byte"])
        self.assertEqual(panel.kernels, {"histogramGlobal": ["8.2700", "49.1000"],
                                         "histogramPrivate": ["0.0989", "0.0984"]})
        self.assertEqual(panel.floor, ["0.0990"])

    def test_what_cannot_be_drawn_is_an_error(self) -> None:
        found = evidence.parse(self.path)
        for wrong in (STDOUT.replace("speedup", "gain"), STDOUT.replace("GB/s", "GB"),
                      STDOUT.replace("8.2700", "0.0000")):
            found.stdout = wrong
            with self.assertRaises(EvidenceError):
                plot_evidence.panels_of(found)
        self.assertEqual(self.call(plot_evidence.main, "nothing")[0], 2)

    def test_without_matplotlib_it_says_what_to_install(self) -> None:
        with mock.patch.dict(sys.modules, {"matplotlib": None, "matplotlib.pyplot": None}):
            status, said = self.call(plot_evidence.main)
        self.assertEqual((status, self.evidence()), (77, [self.path]))
        self.assertIn("pip install matplotlib", said)

    def test_a_missing_picture_is_a_problem(self) -> None:
        self.assertEqual(len(picture_problems(self.path)), 2)

    @unittest.skipUnless(HAVE_MATPLOTLIB, NO_MATPLOTLIB)
    def test_the_pictures_show_the_evidence_and_other_pictures_are_caught(self) -> None:
        status, said = self.call(plot_evidence.main, "histogram")
        self.assertEqual(status, 0, said)
        self.assertEqual(picture_problems(self.path), [])
        svg = self.path.with_suffix(".svg")
        before = svg.read_text()
        self.assertNotRegex(before, r"[ \t]\n")
        for text in ("time of one run (ms, logarithmic)", "input", "recorded 20"):
            self.assertIn(text, before)
        svg.write_text(before.replace(">8.2700<", ">8.2600<"))
        self.assertIn("does not show 8.2700", picture_problems(self.path)[0])
        svg.write_text(before)
        body = STDOUT.replace("8.2700", "8.2710")
        found = evidence.parse(self.path)
        pairs = [(key, value) for key, values in found.fields.items() for value in values
                 if key not in ("stdout lines", "body sha256")]
        self.path.write_text(evidence.render(pairs, body))
        problems = picture_problems(self.path)
        self.assertEqual(len([x for x in problems if "drawn from other figures" in x]), 2, problems)

    @unittest.skipUnless(HAVE_MATPLOTLIB, NO_MATPLOTLIB)
    def test_the_bars_are_as_high_as_the_figures(self) -> None:
        found = evidence.parse(self.path)
        panels = plot_evidence.panels_of(found)
        figure = plot_evidence.draw(found, panels)
        for axes, panel in zip(figure.axes, panels):
            for bars, times in zip(axes.containers, panel.kernels.values()):
                self.assertEqual([bar.get_height() for bar in bars], [float(x) for x in times])
            self.assertEqual(axes.lines[0].get_ydata()[0], float(panel.floor[0]))
            self.assertEqual([x.get_text() for x in axes.get_xticklabels()], panel.inputs)

    def test_evidence_with_a_problem_is_not_drawn(self) -> None:
        self.path.write_text(self.path.read_text().replace("8.2700", "8.1700"))
        status, said = self.call(plot_evidence.main)
        self.assertEqual((status, self.evidence()), (77 if not HAVE_MATPLOTLIB else 1, [self.path]))


class OtherLessons(unittest.TestCase):
    def panels(self, source: str, text: str) -> list[plot_evidence.Panel]:
        return plot_evidence.panels_of(evidence.Evidence(Path("x"), {"source": [source]}, text))

    def test_a_panel_for_each_size_and_a_floor_for_each_input(self) -> None:
        times = {(size, name, kernel): (place + 1) * size * 1e-9
                 for size in (67109475, 1073742435) for name in FLOOR_INPUTS
                 for place, kernel in enumerate(FLOOR_KERNELS)}
        small, large = self.panels("day29/histogram_at_the_floor.cu", floor_output(
            times, [(4096, "uniform bytes", 0.1, 0.1, 0.1)], "  CUB 0"))
        self.assertEqual((small.title, large.title), ("67,109,475 bytes", "1,073,742,435 bytes"))
        self.assertEqual(small.inputs, list(FLOOR_INPUTS))
        self.assertEqual(small.floor, ["0.13422"] * 3)
        self.assertEqual(large.kernels["column per lane"],
                         [f"{len(FLOOR_KERNELS) * 1.073742435:.5f}"] * 3)
        self.assertEqual(len(small.kernels), len(FLOOR_KERNELS) - 1)

    def test_a_panel_for_each_number_of_keys(self) -> None:
        one, many = self.panels("chapter07/92_counting_sort_at_speed.cu", (
            "  keys     input     CUB (ms)  ours (ms)  ratio\n"
            "  1048576  uniform     0.0200     0.0100   2.00\n"
            " 67108864  one byte    0.4000     0.2000   2.00\n"))
        self.assertEqual((one.title, one.inputs), ("1048576 keys", ["uniform"]))
        self.assertEqual(many.kernels, {"CUB DeviceRadixSort": ["0.4000"],
                                        "this lesson": ["0.2000"]})


class ThisCourse(unittest.TestCase):
    def test_every_picture_shows_its_evidence(self) -> None:
        for path in evidence.files():
            if plot_evidence.can_draw(path):
                with self.subTest(path.name):
                    self.assertEqual(picture_problems(path), [])

    def test_every_plot_belongs_to_a_lesson(self) -> None:
        stems = {lesson.stem for lesson in course.lessons()}
        self.assertEqual(sorted(set(plot_evidence.PLOTS) - stems), [])

    def test_colors_can_be_read_on_the_paper(self) -> None:
        def luminance(color: str) -> float:
            parts = [int(color[at:at + 2], 16) / 255 for at in (1, 3, 5)]
            red, green, blue = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4
                                for x in parts]
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue

        def contrast(one: str, other: str) -> float:
            low, high = sorted((luminance(one), luminance(other)))
            return (high + 0.05) / (low + 0.05)

        self.assertGreater(contrast(plot_evidence.INK, plot_evidence.PAPER), 7)
        for color in plot_evidence.COLORS:
            self.assertRegex(color, re.compile("^#[0-9a-f]{6}$"))
            self.assertGreater(contrast(color, plot_evidence.PAPER), 1.9, color)


if __name__ == "__main__":
    unittest.main()
