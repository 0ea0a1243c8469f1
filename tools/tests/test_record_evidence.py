"""The recorder of evidence: what it writes, and all that it must refuse."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest
import unittest.mock
from pathlib import Path

from tools import course, evidence, record_evidence
from tools.tests.evidence_course import (LESSON, PROBE, STDOUT, TRANSCRIPT, EvidenceCourse, program)
from tools.tests.small_course import default_interrupt

ANNOUNCED = LESSON.replace("// Run:   ./histogram\n",
                           "// Run:   ./histogram\n// Stderr: device: {text}\n")
FIXED = "the same every time\n"
DEVICE = "device: NVIDIA H200, compute capability 9.0: all match\n"


class Recorder(EvidenceCourse):
    def record(self, *arguments: str) -> tuple[int, str]:
        return self.call(record_evidence.main, "histogram", *arguments)

    def refused(self, reason: str, *arguments: str, status: int = 1) -> None:
        got, said = self.record(*arguments)
        self.assertEqual((got, self.evidence()), (status, []), said)
        self.assertIn(reason, said)

    def announce(self) -> None:
        self.write("day29/histogram.cu", ANNOUNCED)
        self.write("expected/day29/histogram.txt", FIXED)
        (self.fakes / "program.sh").write_text(program(FIXED, DEVICE))
        self.commit()


class Records(Recorder):
    def test_a_good_run_is_written_with_all_fields_and_the_output_verbatim(self) -> None:
        status, said = self.record()
        self.assertEqual(status, 0, said)
        [path] = self.evidence()
        self.assertRegex(path.name, r"^run-\d{4}-\d\d-\d\d-h200-histogram\.txt$")
        found = evidence.parse(path)
        self.assertEqual(found.stdout, STDOUT)
        self.assertTrue(path.read_text().endswith("\n\n" + STDOUT))
        for key in evidence.COMMON_KEYS + evidence.RUN_KEYS:
            self.assertTrue(found.get(key), key)
        self.assertEqual(found.get("source sha256"), evidence.sha256(LESSON.encode()))
        self.assertEqual(found.get("commit"), self.git("rev-parse", "HEAD"))
        self.assertEqual(found.get("driver"), "580.159.04, supports CUDA 13.0")
        self.assertEqual(found.get("nvcc"), "V13.0.88")
        self.assertEqual(found.get("checked against"),
                         "expected/day29/histogram.txt, 9 masked values, passed")
        self.assertEqual(path.stat().st_mode & 0o777, 0o644)

    def test_both_build_lines_are_recorded_and_the_longer_one_was_used(self) -> None:
        self.record()
        found = evidence.parse(self.evidence()[0])
        documented = "nvcc -arch=sm_75 histogram.cu -o histogram"
        self.assertEqual(found.get("build line"), documented)
        self.assertEqual(found.get("build line used"),
                         documented + " -gencode arch=compute_90,code=sm_90")
        self.assertIn("-arch=sm_75 histogram.cu -o histogram -gencode arch=compute_90,code=sm_90",
                      (self.fakes / "nvcc.log").read_text())

    def test_the_documented_line_is_left_alone_when_it_suits_the_card(self) -> None:
        self.assertEqual(record_evidence.line_for_card("nvcc -arch=sm_90 a.cu", "9.0"),
                         "nvcc -arch=sm_90 a.cu")
        self.assertEqual(record_evidence.line_for_card("nvcc -arch=sm_90a a.cu", "9.0"),
                         "nvcc -arch=sm_90a a.cu -gencode arch=compute_90,code=sm_90")

    @unittest.skipUnless(shutil.which("nvcc"), "no nvcc; install the CUDA toolkit")
    def test_the_real_compiler_takes_the_line_used(self) -> None:
        nvcc = shutil.which("nvcc", path=os.environ["PATH"].partition(os.pathsep)[2])
        for line in ("nvcc -arch=sm_80 a.cu -o a", "nvcc -std=c++17 -O3 -arch=sm_75 -o a a.cu"):
            words = record_evidence.line_for_card(line, "9.0").split()
            done = subprocess.run([nvcc, *words[1:], "--dryrun"], capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("sm_90", done.stderr)

    def test_several_runs_keep_the_stderr_of_each(self) -> None:
        self.announce()
        status, said = self.record("--runs", "3")
        self.assertEqual(status, 0, said)
        found = evidence.parse(self.evidence()[0])
        self.assertEqual((found.stdout, found.stderr), (FIXED, [DEVICE] * 3))
        self.assertTrue(found.get("regenerate").endswith("day29/histogram.cu --runs 3"))

    def test_works_without_history_given_the_commit_and_leaves_a_copy(self) -> None:
        commit = self.git("rev-parse", "HEAD")
        shutil.rmtree(self.root / ".git")
        out = self.root.parent / "out"
        status, said = self.record("--commit", commit, "--out", str(out))
        self.assertEqual(status, 0, said)
        [path] = self.evidence()
        self.assertEqual((out / path.name).read_bytes(), path.read_bytes())
        self.assertEqual(evidence.parse(path).get("commit"), commit)

    def test_an_older_commit_is_fine_when_it_holds_the_same_source(self) -> None:
        older = self.git("rev-parse", "HEAD")
        self.write("README.md", "More words.\n")
        self.commit()
        self.assertEqual(self.record("--commit", older)[0], 0)
        self.assertEqual(evidence.parse(self.evidence()[0]).get("commit"), older)

    def test_the_clock_comes_from_nvidia_smi_when_the_attribute_says_0(self) -> None:
        (self.fakes / "probe.sh").write_text(PROBE.replace("clock kHz: 3201000", "clock kHz: 0"))
        self.record()
        self.assertEqual(evidence.parse(self.evidence()[0]).integer("memory clock kHz"), 3201000)


class Refuses(Recorder):
    def test_a_changed_source(self) -> None:
        self.write("day29/histogram.cu", LESSON + "// one more line\n")
        self.refused("day29/histogram.cu differs from commit")

    def test_a_staged_source_that_is_not_committed(self) -> None:
        self.write("day29/histogram.cu", LESSON + "// one more line\n")
        self.git("add", "-A")
        self.refused("differs from commit")

    def test_a_changed_transcript(self) -> None:
        self.write("expected/day29/histogram.txt", TRANSCRIPT + "{{ratio}}\n")
        self.refused("expected/day29/histogram.txt differs from commit")

    def test_a_source_that_git_does_not_know(self) -> None:
        self.git("rm", "-q", "--cached", "day29/histogram.cu")
        self.git("commit", "-q", "-m", "Forget the lesson")
        self.refused("is not in commit")

    def test_a_commit_that_holds_another_source(self) -> None:
        older = self.git("rev-parse", "HEAD")
        self.write("day29/histogram.cu", LESSON + "// one more line\n")
        self.commit()
        self.refused("differs from commit", "--commit", older)

    def test_no_history_and_no_commit_or_half_a_commit(self) -> None:
        shutil.rmtree(self.root / ".git")
        self.refused("name the commit with --commit")
        self.refused("all 40 hexadecimal digits", "--commit", "abc1234")

    def test_no_gpu(self) -> None:
        (self.fakes / "probe.sh").write_text("echo 'no GPU: none here' >&2; exit 77\n")
        self.refused("no GPU", status=77)

    def test_a_probe_that_ran_on_the_cpu_runtime(self) -> None:
        (self.fakes / "probe.sh").write_text(
            PROBE.replace("NVIDIA H200", "CPU (2 workers)").replace("9.0", "0.0"))
        self.refused("is not a GPU", status=77)

    def test_kernels_that_ran_on_the_cpu(self) -> None:
        for stderr, stdout in (("cuda_on_cpu: kernels ran on 2 CPU threads\n", STDOUT),
                               ("", STDOUT.replace("NVIDIA H200", "CPU (2 workers)"))):
            (self.fakes / "program.sh").write_text(program(stdout, stderr))
            self.refused("the kernels ran on the CPU")

    def test_kernels_that_did_not_run(self) -> None:
        self.announce()
        (self.fakes / "program.sh").write_text(program(
            FIXED, "device: none found (no driver): kernels not run, host simulation only\n"))
        self.refused("a GPU is required")

    def test_another_gpu_than_the_one_in_the_header(self) -> None:
        (self.fakes / "program.sh").write_text(program(STDOUT.replace("H200", "T4")))
        self.refused("the GPU at hand is NVIDIA H200")

    def test_a_program_that_fails_crashes_or_skips(self) -> None:
        (self.fakes / "program.sh").write_text(program(status=1))
        self.refused("exit status 1")
        (self.fakes / "program.sh").write_text(program(before="kill -SEGV $$"))
        self.refused("SIGSEGV")
        (self.fakes / "program.sh").write_text("echo no device >&2; exit 77\n")
        self.refused("a GPU is required")

    def test_a_run_that_stops_half_way(self) -> None:
        (self.fakes / "program.sh").write_text(program("".join(STDOUT.splitlines(True)[:7])))
        self.refused("did not pass its check")

    def test_values_that_cannot_be(self) -> None:
        for wrong in ("   nan", "   inf", "0.0000", "-1.000"):
            (self.fakes / "program.sh").write_text(program(STDOUT.replace("8.2700", wrong)))
            self.refused("did not pass its check")

    def test_stderr_that_nobody_announced(self) -> None:
        (self.fakes / "program.sh").write_text(program(stderr="warning: something\n"))
        self.refused("was not announced")

    def test_a_stdout_that_changes_from_run_to_run(self) -> None:
        (self.fakes / "program.sh").write_text(
            f'n=$(cat {self.fakes}/n 2>/dev/null || echo 0); echo $((n + 1)) > {self.fakes}/n\n'
            + program().replace("'END'", "END", 1).replace("8.2700", "8.270$n"))
        self.refused("stdout differs from run to run", "--runs", "2")

    def test_a_file_that_exists(self) -> None:
        self.assertEqual(self.record()[0], 0)
        [path] = self.evidence()
        before = path.read_bytes()
        status, said = self.record()
        self.assertEqual((status, path.read_bytes()), (1, before))
        self.assertIn("never written over", said)
        with self.assertRaises(evidence.EvidenceError):
            evidence.write_new(path, "other\n")
        self.assertEqual((self.evidence(), path.read_bytes()), ([path], before))

    def test_a_build_that_fails(self) -> None:
        (self.fakes / "nvcc-fails").touch()
        self.refused("failed with status 2: ptxas fatal: no")

    def test_a_lesson_without_kernels_and_an_unknown_one(self) -> None:
        self.assertEqual(self.call(record_evidence.main, "no_such_lesson")[0], 2)
        self.write("day29/plain.cpp", LESSON.replace("nvcc -arch=sm_75 histogram.cu -o histogram",
                                                     "g++ plain.cpp -o plain")
                   .replace("./histogram", "./plain"))
        self.write("CMakeLists.txt", "add_lesson(day29/plain.cpp LABELS cpu)\n")
        status, said = self.call(record_evidence.main, "plain")
        self.assertEqual((status, self.evidence()), (1, []))
        self.assertIn("has no kernels", said)


class Killed(Recorder):
    def kill(self, number: int, sign: Path) -> tuple[int, str]:
        """Start the recorder and end it when the sign is there: its status, its last words.

        Only then, because a signal can get lost while Python is still importing modules.
        """
        script = ("import sys, time; from pathlib import Path\n"
                  f"sys.path.insert(0, {str(course.ROOT)!r})\n"
                  "from tools import course, evidence, record_evidence\n"
                  "sync = evidence.os.fsync\n"  # Hold the moment between the write and the name.
                  f"evidence.os.fsync = lambda handle: (sync(handle), Path({str(self.fakes)!r}, "
                  "'written').touch(), time.sleep(60))\n"
                  "sys.exit(course.run_tool(lambda: record_evidence.main(['histogram'], "
                  f"root=Path({str(self.root)!r}))))\n")
        sign.unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-B", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, preexec_fn=default_interrupt)
        while not sign.exists():
            self.assertIsNone(process.poll(), "it ended before it was killed")
            time.sleep(0.01)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
        self.assertNotIn("Traceback", said)
        return process.returncode, said.splitlines()[-1] if said else ""

    def test_killed_at_any_moment_it_leaves_no_file(self) -> None:
        (self.fakes / "program.sh").write_text(
            program(before=f"touch '{self.fakes}/running'; sleep 0.2"))
        for moment in ("nvcc.log", "running", "written"):
            for number, status in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130),
                                   (signal.SIGTERM, 128 + signal.SIGTERM)):
                with self.subTest(f"{moment} {number.name}"):
                    got, words = self.kill(number, self.fakes / moment)
                    self.assertEqual((got, self.evidence()), (status, []))
                    if number != signal.SIGKILL:
                        self.assertRegex(words, "interrupted$|ended by SIGTERM$")

    @staticmethod
    def without_nameless_files():
        real = os.open

        def without(path, flags, *rest, **more):
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError("not supported")
            return real(path, flags, *rest, **more)

        return unittest.mock.patch.object(os, "open", without)

    def test_a_full_disk_leaves_no_file(self) -> None:
        full = OSError(errno.ENOSPC, "No space left on device")
        for files in (contextlib.nullcontext(), self.without_nameless_files()):
            with files, unittest.mock.patch.object(os, "fsync", side_effect=full):
                with self.assertRaisesRegex(OSError, "No space left"):
                    self.record()
            self.assertEqual(self.evidence(), [])

    def test_a_file_system_without_nameless_files(self) -> None:
        with self.without_nameless_files():
            path = self.root / "day29/evidence/run.txt"
            evidence.write_new(path, "text\n")
            with self.assertRaises(evidence.EvidenceError):
                evidence.write_new(path, "other\n")
        self.assertEqual((self.evidence(), path.read_text()), ([path], "text\n"))


class Form(unittest.TestCase):
    TEXT = evidence.render([("kind", "run")], "out\n", ["a: 1\n", ""])

    def test_what_is_written_can_be_read(self) -> None:
        found = evidence.parse(Path("x"), self.TEXT)
        self.assertEqual((found.get("kind"), found.stdout, found.stderr),
                         ("run", "out\n", ["a: 1\n", ""]))

    def test_a_file_that_is_cut_off_is_refused(self) -> None:
        whole = evidence.render([("kind", "run")], "one\ntwo\n")
        for end in range(len(whole)):
            with self.assertRaises(evidence.EvidenceError, msg=whole[:end]):
                evidence.parse(Path("x"), whole[:end])

    def test_output_without_an_end_and_empty_fields_are_refused(self) -> None:
        for fields, stdout in (([("kind", "run")], "no end"), ([("kind", "")], "out\n"),
                               ([("kind", "a\nb")], "out\n"), ([("kind", "run")], "")):
            with self.assertRaises(evidence.EvidenceError):
                evidence.render(fields, stdout)

    def test_names_of_gpus(self) -> None:
        self.assertEqual(evidence.gpu_slug("NVIDIA H200"), "h200")
        self.assertEqual(evidence.gpu_slug("NVIDIA GeForce RTX 4090"), "geforce-rtx-4090")

    def test_tables(self) -> None:
        [table] = evidence.tables(STDOUT)
        self.assertEqual(table.rows[1], {"input": "all one byte", "global (ms)": "49.1000",
                                         "private (ms)": "0.0984", "speedup": "498.98"})
        self.assertIn(("ms", 8.27), evidence.figures(STDOUT))
        self.assertIn(("times", 83.62), evidence.figures(STDOUT))


if __name__ == "__main__":
    unittest.main()
