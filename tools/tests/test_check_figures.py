"""Figures in pages and comments: from evidence, or marked."""

import unittest

from tools import check_figures, course, record_evidence
from tools.tests.evidence_course import EvidenceCourse


class Figures(EvidenceCourse):
    def setUp(self) -> None:
        super().setUp()
        self.assertEqual(self.call(record_evidence.main, "histogram")[0], 0)

    def page(self, text: str, name: str = "README.md") -> list[str]:
        self.write(name, text)
        status, said = self.call(check_figures.main)
        problems = said.splitlines()[:-1]
        self.assertEqual(status, 1 if problems else 0, said)
        return problems

    def test_recorded_figures_pass(self) -> None:
        for text in ("It takes 8.27 ms, 8.3 ms, 8 ms, 98.9 µs or 98.9 us.\n",
                     "It reads 678 GB/s, which is 0.68 TB/s.\n", "It is 83.6x or 83.6 times.\n",
                     "| ms |\n|---|\n| 0.0984 ms |\n", "At most 4917 GB/s, at 1.98 GHz.\n"):
            self.assertEqual(self.page(text), [], text)

    def test_figures_from_nowhere_are_found(self) -> None:
        for text in ("It takes 8.28 ms.\n", "It takes 9 ms.\n", "It takes 83.6 ms.\n", "5.1 µs\n",
                     "It reads 700 GB/s.\n", "It reads 3.3 TB/s.\n", "It is 84.6x faster.\n",
                     "It is 3.2× as fast.\n", "It is 4 times faster.\n", "This is 7.5 times.\n",
                     "97 % of the floor.\n", "8.28 milliseconds\n", "9 ns\n", "2.5 GHz\n"):
            problems = self.page(text)
            self.assertEqual(len(problems), 1, text)
            self.assertIn("README.md:1: '", problems[0])

    def test_numbers_that_are_no_figures_about_hardware(self) -> None:
        for text in ("Run it 20 times. It has 256 bins, 48 KiB, 50 % zeros and 2 x 3 tiles.\n",
                     "A grid of 1024x256 threads, 32 × 32 banks, 1,000 messages.\n"):
            self.assertEqual(self.page(text), [], text)

    def test_a_quotient_of_two_recorded_figures(self) -> None:
        text = "It takes 49.1 ms and not 8.27 ms: {}\n"
        self.assertEqual(self.page(text.format("5.94 times as long.")), [])
        self.assertEqual(self.page(text.format("16.8 % of the speed.")), [])
        self.assertEqual(len(self.page(text.format("6.94 times as long."))), 1)
        # Of two figures, one of which nobody recorded, nothing follows.
        self.assertEqual(len(self.page("From 49.1 ms to 5.5 ms: 8.93 times faster.\n")), 2)

    def test_the_fixed_output_of_a_lesson_can_be_quoted(self) -> None:
        self.write("expected/day29/histogram.txt", "a factor of 256.0 and {{time_ms 1..77.7}}\n")
        self.assertEqual(self.page("256.0 times fewer atomics.\n"), [])
        self.assertEqual(len(self.page("77.7 times fewer atomics.\n")), 1)
        self.assertEqual(len(self.page("It takes 256.0 ms.\n")), 1)

    def test_marks_cover_their_paragraph_and_a_table_below_it(self) -> None:
        for mark in check_figures.MARKS:
            self.assertEqual(self.page(f"It took 5.5 ms {mark}.\n"), [])
            self.assertEqual(self.page(f"They say {mark}:\n\n| a |\n|---|\n| 5.5 ms |\n"), [])
            self.assertEqual(self.page(f"They say {mark}:\n| a |\n|---|\n| 5.5 ms |\n"), [])
            self.assertEqual(self.page(f"They say {mark}:\n\n```\na\n\n5.5 ms\n```\n"), [])
            self.assertEqual(len(self.page(f"They say {mark}:\n\nIt took 5.5 ms.\n")), 1)
            self.assertEqual(len(self.page(f"They say {mark}.\n\nAnd:\n\n| 5.5 ms |\n")), 1)

    def test_copied_blocks_are_left_out_and_what_follows_is_not(self) -> None:
        text = "<!-- transcript: x.txt -->\n```\n5.5 ms\n```\n<!-- end -->\n\n{}\n"
        self.assertEqual(self.page(text.format("")), [])
        self.assertEqual(len(self.page(text.format("It took 5.5 ms."))), 1)

    def test_comments_of_lessons_and_pages_in_chapters(self) -> None:
        self.assertEqual(len(self.page("It took 5.5 ms.\n", "day29/README.md")), 1)
        self.write("day29/README.md", "\n")
        problems = self.page("int a;  // 5.5 ms\nint b;\n// 8.27 ms\n// 3.2 times\n// as long\n",
                             "day29/other.cu")
        self.assertEqual([x.split(": ")[0] for x in problems],
                         ["day29/other.cu:1", "day29/other.cu:4"])

    def test_one_file_and_wrong_use(self) -> None:
        self.write("README.md", "It took 5.5 ms.\n")
        self.write("other.md", "Nothing.\n")
        self.assertEqual(self.call(check_figures.main, str(self.root / "other.md"))[0], 0)
        self.assertEqual(self.call(check_figures.main, str(self.root / "none.md"))[0], 2)


class ThisCourse(unittest.TestCase):
    def test_every_figure_has_its_source(self) -> None:
        quotable = check_figures.known(course.ROOT)
        for path in check_figures.to_check(course.ROOT):
            text = course.read_text(path)
            blocks = check_figures.pages(text) if path.suffix == ".md" \
                else check_figures.comments(text)
            name = path.relative_to(course.ROOT).as_posix()
            self.assertEqual(check_figures.check_text(blocks, name, quotable), [])


if __name__ == "__main__":
    unittest.main()
