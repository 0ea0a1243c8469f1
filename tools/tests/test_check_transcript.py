"""Tests of tools/check_transcript.py, above all that it fails when it must."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

from tools import check_transcript
from tools.check_transcript import TranscriptError, match, visible
from tools.course import ROOT

TOOL = ROOT / "tools" / "check_transcript.py"
EXPECTED = "title\n\none 1 \ntwo 2\nlast\n"
PRINT = "import sys; sys.stdout.buffer.write({!r})"


def stays_alive(pid: int) -> bool:
    """Whether a process is still there after a moment; an end takes effect a little later."""
    for _ in range(60):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return False
        if state in "ZX":
            return False
        time.sleep(0.05)
    return True


class ToolCase(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="a blank and \u00e9 ")
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)
        self.expected = self.directory / "expected.txt"
        self.write(EXPECTED)

    def write(self, text: str | bytes) -> None:
        self.expected.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))

    def check(self, program: str, *options: str) -> tuple[int, str]:
        """Check the Python program given; returns status and output, errors included."""
        return self.check_command([sys.executable, "-I", "-S", "-c", program], *options)

    def check_output(self, text: str | bytes, *options: str) -> tuple[int, str]:
        """Check a program that prints the text."""
        data = self.directory.with_name(self.directory.name + ".data")
        data.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        self.addCleanup(data.unlink, missing_ok=True)
        return self.check_command(["cat", str(data)], *options)

    def check_command(self, command: list[str], *options: str) -> tuple[int, str]:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = check_transcript.main([*options, str(self.expected), "--", *command])
        return status, output.getvalue()

    def check_apart(self, program: str, *options: str, **changes: str) -> tuple[int, str]:
        """The same in a process of its own, with another environment."""
        done = subprocess.run([sys.executable, TOOL, *options, self.expected, "--",
                               sys.executable, "-c", program], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60, encoding="utf-8",
                              env={**os.environ, **changes})
        return done.returncode, done.stdout


class FailsWhenItMust(ToolCase):
    def test_the_right_text_passes(self):
        self.assertEqual(self.check_output(EXPECTED), (0, f"passed: {self.expected}\n"))

    def test_texts_that_differ(self):
        for why, (text, shown) in {
            "changed": (EXPECTED.replace("two 2", "two 3"), "+two 3"),
            "missing": (EXPECTED.replace("two 2\n", ""), "-two 2"),
            "extra": (EXPECTED + "more\n", "+more"),
            "reordered": ("title\n\ntwo 2\none 1 \nlast\n", "+two 2"),
            "repeated": (EXPECTED.replace("two 2\n", "two 2\ntwo 2\n"), "+two 2"),
            "blank added": (EXPECTED.replace("two 2", "two 2 "), "+two 2[1 blank]"),
            "blank removed": (EXPECTED.replace("one 1 ", "one 1"), "-one 1[1 blank]"),
            "CR": (EXPECTED.replace("\n", "\r\n"), "+two 2[CR]"),
            "tab": (EXPECTED.replace("two 2", "two\t2"), "+two[TAB]2"),
            "other letter": (EXPECTED.replace("two", "tw\u00f6"), r"+tw\xf6 2"),
            "no newline at the end": (EXPECTED[:-1], "no newline at its end"),
            "empty line at the end": (EXPECTED + "\n", "@@"),
            "form feed": (EXPECTED.replace("two 2", "two 2\f"), r"+two 2\x0c"),
            "other line end": (EXPECTED.replace("two 2", "two 2\u2028"), r"+two 2\u2028"),
        }.items():
            with self.subTest(why):
                status, output = self.check_output(text)
                self.assertEqual(status, 1)
                self.assertIn(shown, output)
                self.assertIn("failed: ", output)

    def test_right_text_and_exit_status_3(self):
        status, output = self.check(PRINT.format(EXPECTED.encode()) + "; sys.exit(3)")
        self.assertEqual(status, 1)
        self.assertIn("exit status 3", output)

    def test_a_crash_after_the_last_line(self):
        status, output = self.check(PRINT.format(EXPECTED.encode())
                                    + "; sys.stdout.flush(); import os; os.kill(os.getpid(), 11)")
        self.assertEqual(status, 1)
        self.assertIn("SIGSEGV", output)

    def test_stderr_that_nobody_announced(self):
        status, output = self.check(PRINT.format(EXPECTED.encode())
                                    + "; print('hm', file=sys.stderr)")
        self.assertEqual(status, 1)
        self.assertIn("not announced: hm", output)

    def test_a_hang(self):
        start = time.monotonic()
        status, output = self.check("import time; print('x', flush=True); time.sleep(100)",
                                    "--timeout", "0.5")
        self.assertEqual(status, 1)
        self.assertIn("did not end within 0.5 s", output)
        self.assertLess(time.monotonic() - start, 10)

    def test_a_hang_with_closed_streams(self):
        status, output = self.check("import os, time; os.close(1); os.close(2); time.sleep(100)",
                                    "--timeout", "0.5")
        self.assertEqual(status, 1)
        self.assertIn("did not end within 0.5 s", output)

    def test_a_child_that_keeps_the_pipe_open_is_ended(self):
        start = time.monotonic()
        status, output = self.check(
            "import os, sys, time\nchild = os.fork()\nif child == 0: time.sleep(100)\n"
            f"open({str(self.directory / 'pid')!r}, 'w').write(str(child))\n"
            + PRINT.format(EXPECTED.encode()))
        self.assertEqual(status, 1)
        self.assertIn("left a process behind", output)
        self.assertLess(time.monotonic() - start, 10)
        self.assertFalse(stays_alive(int((self.directory / "pid").read_text())))

    def test_a_flood_ends_in_one_clear_line(self):
        status, output = self.check("import sys\n"
                                    "for i in range(1600): sys.stdout.write('x' * 65536)")
        self.assertEqual(status, 1)
        self.assertRegex(output, r"\Athe program printed more than \d+ bytes on stdout and was "
                                 r"stopped\nfailed: .*\n\Z")

    def test_invalid_utf8(self):
        status, output = self.check_output(EXPECTED.encode().replace(b"two", b"t\xffo"))
        self.assertEqual(status, 1)
        self.assertIn("not valid UTF-8: byte 0xff", output)

    def test_nothing_printed(self):
        status, output = self.check("pass")
        self.assertEqual(status, 1)
        self.assertIn("printed nothing", output)

    def test_ended_by_a_signal_it_leaves_no_child(self):
        pid = self.directory / "pid"
        tool = subprocess.Popen(
            [sys.executable, TOOL, self.expected, "--", sys.executable, "-c",
             f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(100)"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            if pid.exists() and pid.read_text():
                break
            time.sleep(0.05)
        tool.send_signal(signal.SIGTERM)
        self.assertNotEqual(tool.wait(10), 0)
        self.assertFalse(stays_alive(int(pid.read_text())))

    def test_the_locale_changes_nothing(self):
        for name in ("C", "POSIX", "de_DE.UTF-8", "de_DE.ISO-8859-1"):
            with self.subTest(name):
                text = EXPECTED.replace("two", "tw\u00f6")
                status, output = self.check_apart(PRINT.format(text.encode()), LC_ALL=name)
                self.assertEqual(status, 1)
                self.assertIn("+tw\\xf6 2\n", output)
                self.assertEqual(self.check_apart(PRINT.format(EXPECTED.encode()),
                                                  LC_ALL=name)[0], 0)


class Skips(ToolCase):
    SKIP = "import sys; print('no device', file=sys.stderr); sys.exit(77)"

    def test_a_skip_is_not_a_pass(self):
        self.assertEqual(self.check(self.SKIP), (77, "skipped: no device\n"))

    def test_a_skip_fails_where_a_gpu_is_required(self):
        self.assertEqual(self.check(self.SKIP, "--require-gpu")[0], 1)
        self.write("x\n")
        lesson = next((ROOT / "chapter07").glob("*.cu"))
        with unittest.mock.patch.dict(os.environ, LESSONS_REQUIRE_GPU="1"):
            self.assertEqual(self.check(self.SKIP, "--lesson", str(lesson))[0], 1)

    def test_a_skip_without_a_reason_or_with_output_fails(self):
        for program in ("import sys; sys.exit(77)",
                        "import sys; print('x'); print('no device', file=sys.stderr); sys.exit(77)",
                        "import sys; print('a\\nb', file=sys.stderr); sys.exit(77)"):
            with self.subTest(program):
                self.assertEqual(self.check(program)[0], 1)

    def test_a_pass_without_a_gpu_fails_where_one_is_required(self):
        program = (PRINT.format(EXPECTED.encode())
                   + "; print('device: none found (no driver): not run', file=sys.stderr)")
        pattern = ("--stderr", "device: {text}")
        status, output = self.check(program, *pattern)
        self.assertEqual((status, output.splitlines()[-1]), (0, "kernels: not run (no driver)"))
        self.assertEqual(self.check(program, *pattern, "--require-gpu")[0], 1)


class Stderr(ToolCase):
    def say(self, *lines: str) -> str:
        return PRINT.format(EXPECTED.encode()) + "".join(
            f"; print({line!r}, file=sys.stderr)" for line in lines)

    def test_announced_lines(self):
        patterns = ("--stderr", "device: {text}")
        line = "device: NVIDIA X, compute capability 9.0: all well"
        status, output = self.check(self.say(line), *patterns)
        self.assertEqual((status, output.splitlines()[-1]), (0, "kernels: GPU (NVIDIA X)"))
        for lines in ((), ("device: ",), ("x device: y",), (line, "more"), (line, "")):
            with self.subTest(lines):
                self.assertEqual(self.check(self.say(*lines), *patterns)[0], 1)

    def test_the_line_of_the_cpu_runtime(self):
        line = "cuda_on_cpu: kernels ran on 4 CPU threads"
        status, output = self.check(self.say(line), "--cpu-runtime")
        self.assertEqual((status, output.splitlines()[-1]), (0, "kernels: CPU (4 workers)"))
        self.assertEqual(self.check(self.say(line))[0], 1)
        self.assertEqual(self.check(self.say(line, line), "--cpu-runtime")[0], 1)


class Masks(unittest.TestCase):
    def passes(self, expected: str, actual: str, **options) -> bool:
        differences, _ = match(expected + "\n", actual + "\n", **options)
        return not differences

    def test_values_in_and_out_of_range(self):
        for expected, good, bad in (
            ("{{time_ms}} ms", ("1.5 ms", "0.0001 ms", "12 ms"),
             ("0 ms", "0.000 ms", "-1 ms", "nan ms", "-nan ms", "inf ms", "1,5 ms", "x ms", " ms",
              "1.5  ms", " 1.5 ms", "1e400 ms", "0x10 ms", "1_0 ms", "1.5s ms", "\u0661 ms")),
            ("{{rate_gbs}}", ("678.1",), ("0.0", "inf", "1e9", "NaN")),
            ("{{ratio}}x", ("2.5x",), ("infx", "0.0x", "nanx", "x", "-2.5x")),
            ("{{racy_total 1..2048}}", ("1", "2048"), ("0", "2049", "-5", "1.5", "nan", "")),
            ("{{count 3..3}}", ("3",), ("2", "4")),
            ("{{time_ms 0.5..}}", ("0.5", "600"), ("0.4",)),
            ("GPU {{gpu_name}}, {{capability}}", ("GPU NVIDIA H200, 9.0", "GPU a, b, 12.1"),
             ("GPU , 9.0", "GPU NVIDIA H200, 9", "GPU a\tb, 9.0", "GPU NVIDIA H200, nan")),
        ):
            for text in good:
                with self.subTest(expected=expected, good=text):
                    self.assertTrue(self.passes(expected, text))
            for text in bad:
                with self.subTest(expected=expected, bad=text):
                    self.assertFalse(self.passes(expected, text))

    def test_width(self):
        row = "text  {{time_ms:8}}  {{ratio:6}}"
        self.assertTrue(self.passes(row, "text     1.234     2.5"))
        self.assertTrue(self.passes(row, "text  12345.678     2.5"))  # A wider value pushes.
        for text in ("text    1.234     2.5", "text      1.234     2.5", "text     1.234    2.5",
                     "text     1.234     2.5 ", "text   12345.678     2.5"):
            with self.subTest(text):
                self.assertFalse(self.passes(row, text))

    def test_masks_without_text_between_them(self):
        row = "{{time_ms:6}}{{time_ms:6}}{{gpu_name:6}}"
        for text in ("   1.0   2.0     x", "  10.5123.25   x y", "1234567   2.0     x"):
            with self.subTest(text):
                self.assertTrue(self.passes(row, text))
        for text in ("   1.0   2.0    x", "   1.0         x", "  1.0   2.0     x",
                     "   nan   2.0     x"):
            with self.subTest(text):
                self.assertFalse(self.passes(row, text))

    def test_rates_may_be_zero_and_shares_huge_on_the_cpu_only(self):
        self.assertTrue(self.passes("{{rate_gbs}}", "0.0", cpu_runtime=True))
        self.assertTrue(self.passes("{{share}}", "1241.6", cpu_runtime=True))
        self.assertFalse(self.passes("{{share}}", "1241.6"))
        self.assertFalse(self.passes("{{rate_gbs}}", "0.0"))
        for text in ("nan", "inf", "-1.0"):
            self.assertFalse(self.passes("{{rate_gbs}}", text, cpu_runtime=True))
        self.assertFalse(self.passes("{{time_ms}}", "0.0", cpu_runtime=True))

    def test_fixed_text_beside_a_mask_is_exact(self):
        for text in ("took 1.5 ms.", "Took 1.5 ms", "took 1.5  ms", "took 1.5 ms ",
                     "took 1.5 ms\r"):
            with self.subTest(text):
                self.assertFalse(self.passes("took {{time_ms}} ms", text))
        self.assertFalse(self.passes("(a.b) {{time_ms}}", "(axb) 1.5"))

    def test_values_are_returned_in_order(self):
        differences, values = match("{{time_ms}} {{ratio}}\n{{time_ms:6}}\n", "1.0 2.0\n   3.0\n")
        self.assertEqual((differences, values), ([], {"time_ms": ["1.0", "3.0"], "ratio": ["2.0"]}))

    def test_the_reason_is_told(self):
        differences, _ = match("a\nt = {{time_ms}}\n", "a\nt = nan\n")
        self.assertIn("line 2: {{time_ms}}: 'nan' is not a finite decimal number", differences[-1])

    def test_a_moved_line_with_a_mask_is_shown_and_others_stay_quiet(self):
        differences, _ = match("a\n{{time_ms}}\nb\n", "a\nb\n1.5\n")
        self.assertTrue(differences)
        differences, _ = match("x\n{{time_ms}}\nb\n", "y\n1.5\nb\n")
        self.assertNotIn("+1.5", differences)

    def test_masks_that_are_wrong(self):
        for text in ("{{.*}}", "{{nothing}}", "{{time_ms", "{{time_ms:x}}", "{{racy_total}}",
                     "{{racy_total 1..}}", "{{time_ms 5..1}}", "{{gpu_name 1..2}}", "{{}}",
                     "{{time_ms 1-2}}", "{{ time_ms }}"):
            with self.subTest(text), self.assertRaises(TranscriptError):
                match(text + "\n", "1\n")

    def test_every_mask_has_a_reason(self):
        for name, mask in check_transcript.MASKS.items():
            with self.subTest(name):
                self.assertTrue(mask.reason)
                self.assertIn(mask.kind, ("real", "int", "text", "version"))

    def test_visible(self):
        self.assertEqual(visible("a\r"), "a[CR]")
        self.assertEqual(visible("a  "), "a[2 blanks]")
        self.assertTrue(visible("\u00e9\x1b").isascii())


class WrongUse(ToolCase):
    def test_one_line_and_status_2(self):
        program = "print('x')"
        for why, expected in {
            "missing": None, "empty": "", "unknown mask": "{{nothing}}\n", "no UTF-8": b"\xff\n",
        }.items():
            self.expected.unlink(missing_ok=True)
            if expected is not None:
                self.write(expected)
            with self.subTest(why):
                status, output = self.check(program)
                self.assertEqual((status, output.count("\n")), (2, 1), output)

    def test_a_directory_and_a_loop_as_transcript(self):
        self.expected.unlink()
        self.expected.mkdir()
        self.assertEqual(self.check("print('x')")[0], 2)
        self.expected.rmdir()
        self.expected.symlink_to(self.expected)
        status, output = self.check("print('x')")
        self.assertEqual((status, output.count("\n")), (2, 1), output)

    def test_programs_that_cannot_be_started(self):
        plain = self.directory / "plain"
        plain.write_text("x")
        for command in ([str(self.directory / "none")], [str(plain)], [str(self.directory)]):
            with self.subTest(command):
                done = subprocess.run([sys.executable, TOOL, self.expected, "--", *command],
                                      capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)

    def test_arguments(self):
        for arguments in ([], ["x"], ["x", "--"], ["--timeout", "-1", "x", "--", "true"],
                          ["--timeout", "nan", "x", "--", "true"],
                          ["--require-gpu", "--cpu-runtime", "x", "--", "true"]):
            with self.subTest(arguments):
                done = subprocess.run([sys.executable, TOOL, *arguments], capture_output=True)
                self.assertEqual((done.returncode, done.stdout), (2, b""))


class Writing(ToolCase):
    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def test_it_never_writes_without_accept(self):
        before = self.expected.stat().st_mtime_ns
        self.check_output("other\n")
        self.check_output(EXPECTED)
        self.assertEqual(self.expected.stat().st_mtime_ns, before)
        self.assertEqual(self.files(), ["expected.txt"])

    def test_accept_writes_and_keeps_masks(self):
        self.write("a\nt = {{time_ms:6}}\nb\n")
        status, _ = self.check_output("new\na\nt =    1.5\n", "--accept")
        self.assertEqual(status, 0)
        self.assertEqual(self.expected.read_bytes(), b"new\na\nt = {{time_ms:6}}\n")
        self.assertEqual(self.files(), ["expected.txt"])
        self.expected.unlink()
        self.assertEqual(self.check_output("fresh \n", "--accept")[0], 0)
        self.assertEqual(self.expected.read_bytes(), b"fresh \n")

    def test_accept_refuses(self):
        masked = "a\nt = {{time_ms}}\n{{ratio}}\n"
        for why, (before, program) in {
            "a failure": (EXPECTED, "import sys; print('x'); sys.exit(1)"),
            "a crash": (EXPECTED, "import os; print('x', flush=True); os.abort()"),
            "a skip": (EXPECTED, Skips.SKIP),
            "a hang": (EXPECTED, "import time; print('x', flush=True); time.sleep(100)"),
            "nothing": (EXPECTED, "pass"),
            "unannounced stderr": (EXPECTED, "import sys; print('x'); print('y', file=sys.stderr)"),
            "CR": (EXPECTED, PRINT.format(b"x\r\n")),
            "invalid UTF-8": (EXPECTED, PRINT.format(b"x\xff\n")),
            "a flood": (EXPECTED, "print('x' * 2000000)"),
            "a lost mask": (masked, "print('a\\nt = 1.5')"),
            "a mask whose value is wrong": (masked, "print('a\\nt = nan\\n2.0')"),
        }.items():
            with self.subTest(why):
                self.write(before)
                status, output = self.check(program, "--accept", "--timeout", "2")
                self.assertEqual(status, 1, output)
                self.assertIn("not accepted", output)
                self.assertEqual(self.expected.read_text(), before)
                self.assertEqual(self.files(), ["expected.txt"])

    def test_values_are_written_on_a_pass_only(self):
        self.write("{{time_ms}}\n")
        values = self.directory / "values.json"
        self.check_output("nan\n", "--values", str(values))
        self.assertFalse(values.exists())
        self.check_output("1.5\n", "--values", str(values))
        self.assertEqual(json.loads(values.read_text())["values"], {"time_ms": ["1.5"]})


if __name__ == "__main__":
    unittest.main()
