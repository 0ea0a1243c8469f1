#!/usr/bin/env python3
"""Run one module of tools/tests and write what became of each test as JSON.

    python3 tools/run_test_module.py tools.tests.test_course RESULT.json

RESULT.json holds a list of objects with the keys test, outcome (passed, failed, skipped), detail
and seconds. It appears when the module has ended, whole or not at all; tools/lessons.py reads it.

Exit status: 0 if no test failed, 1 otherwise, 2 wrong use.
"""

from __future__ import annotations

import json
import sys
import time
import unittest
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from tools import course  # noqa: E402


class Recorder(unittest.TestResult):
    """Keeps one entry a test, the worst outcome of its parts."""

    def __init__(self):
        super().__init__()
        self.entries: dict[str, dict] = {}
        self.started = 0.0

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()
        self.entries[test.id()] = {"test": test.id(), "outcome": "passed", "detail": ""}

    def stopTest(self, test):
        super().stopTest(test)
        self.entries[test.id()]["seconds"] = round(time.monotonic() - self.started, 3)

    def note(self, name: str, outcome: str, detail: str) -> None:
        entry = self.entries.setdefault(name, {"test": name, "outcome": "passed", "detail": "",
                                               "seconds": 0.0})
        if entry["outcome"] != "failed":
            entry["outcome"] = outcome
        entry["detail"] = (entry["detail"] + "\n" + detail).strip()

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test.id(), "failed", self._exc_info_to_string(err, test))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test.id(), "failed", self._exc_info_to_string(err, test))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            detail = self._exc_info_to_string(err, test)
            self.note(test.id(), "failed", f"{subtest._subDescription()}\n{detail}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        parent = getattr(test, "test_case", test)  # The test that a subtest belongs to.
        self.note(parent.id(), "skipped", reason)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test.id(), "failed", "unexpected success")


def main(argv: list[str] | None = None) -> int:
    parser = course.Parser(__doc__)
    parser.add_argument("module")
    parser.add_argument("result", type=Path)
    options = parser.parse_args(argv)
    recorder = Recorder()
    unittest.defaultTestLoader.loadTestsFromName(options.module).run(recorder)
    entries = list(recorder.entries.values())
    if not entries:
        entries = [{"test": options.module, "outcome": "failed", "seconds": 0.0,
                    "detail": "the module has nothing to test"}]
    course.write_atomically(options.result, json.dumps(entries, indent=1) + "\n")
    return int(any(entry["outcome"] == "failed" for entry in entries))


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
