"""Known faults are planted, and each must be noticed: a few in each run, all in the long form."""

from __future__ import annotations

import os
import unittest
from dataclasses import replace

from tools import course, plant_faults
from tools.tests.faults.table import FAULTS


class Table(unittest.TestCase):
    def test_every_edit_still_applies(self) -> None:
        for fault in FAULTS:
            with self.subTest(fault.name):
                plant_faults.edited(fault, course.read_text(course.ROOT / fault.file))

    def test_names_are_unique_and_every_lesson_has_faults(self) -> None:
        names = [fault.name for fault in FAULTS]
        self.assertEqual(len(set(names)), len(names))
        self.assertGreaterEqual(len(names), 40)
        files = {fault.file for fault in FAULTS}
        self.assertEqual([str(lesson.path) for lesson in course.lessons()
                          if str(lesson.path) not in files], [])

    def test_what_cannot_be_noticed_has_a_reason(self) -> None:
        for fault in FAULTS:
            self.assertGreater(len(fault.why), 40 if fault.check == "nothing" else 5, fault.name)


class MustFail(unittest.TestCase):
    """The runner itself: no edit, an edit that changes nothing, a check that refuses everything."""

    def setUp(self) -> None:
        self.fault = next(fault for fault in FAULTS if fault.check == "transcript")

    def test_an_edit_that_no_longer_applies(self) -> None:
        good, line = plant_faults.Campaign().plant(replace(self.fault, old="no such text"))
        self.assertFalse(good)
        self.assertIn("no longer applies", line)

    def test_a_fault_that_nobody_notices(self) -> None:
        harmless = replace(self.fault, new=self.fault.old + "  // harmless")
        good, line = plant_faults.Campaign().plant(harmless)
        self.assertFalse(good)
        self.assertIn("NOT noticed", line)

    def test_a_check_that_refuses_the_file_as_it_is(self) -> None:
        campaign = plant_faults.Campaign()
        campaign.accepted[(self.fault.file, self.fault.check)] = "always"
        good, line = campaign.plant(self.fault)
        self.assertFalse(good)
        self.assertIn("without any fault", line)


class Planted(unittest.TestCase):
    campaign = plant_faults.Campaign()


def add(number: int, fault) -> None:
    def test(self: Planted) -> None:
        good, line = self.campaign.plant(fault)
        self.assertTrue(good, f"{fault.name}: {line}")
    test.__doc__ = fault.name
    word = "".join(letter if letter.isalnum() else "_" for letter in fault.name)
    setattr(Planted, f"test_{number:03}_{word}", test)


for each_number, each in enumerate(FAULTS):
    if each.fast or os.environ.get("LESSONS_LONG"):
        add(each_number, each)


if __name__ == "__main__":
    unittest.main()
