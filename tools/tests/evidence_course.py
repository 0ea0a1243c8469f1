"""A course of one lesson with a compiler, a GPU and a git history of its own, for the tests.

nvcc, nvidia-smi, ncu and cuobjdump are small scripts on PATH, so the tools can be tested where
there is no GPU. What the "GPU" and the "program" do are shell scripts that a test replaces.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

LESSON = """\
// SPDX-License-Identifier: MIT
//
// 29.1  A small lesson
//
// One.
// Two.
// Three.
//
// Build: nvcc -arch=sm_75 histogram.cu -o histogram
// Run:   ./histogram
int main() {}
"""
TRANSCRIPT = """\
GPU: {{gpu_name}}
input: 67,109,475 bytes
histogramGlobal:   67109475 (one per byte)
histogramPrivate:  262144 (1024 blocks x 256 bins), fewer by a factor of 256.0
sumBytes: {{time_ms}} ms, {{rate_gbs}} GB/s

input             global (ms)  private (ms)  speedup
uniform bytes     {{time_ms:11}}  {{time_ms:12}}  {{ratio:7}}
all one byte      {{time_ms:11}}  {{time_ms:12}}  {{ratio:7}}
"""
STDOUT = """\
GPU: NVIDIA H200
input: 67,109,475 bytes
histogramGlobal:   67109475 (one per byte)
histogramPrivate:  262144 (1024 blocks x 256 bins), fewer by a factor of 256.0
sumBytes: 0.0990 ms, 678 GB/s

input             global (ms)  private (ms)  speedup
uniform bytes          8.2700        0.0989    83.62
all one byte          49.1000        0.0984   498.98
"""
PROBE = """\
cat <<'END'
gpu: NVIDIA H200
compute capability: 9.0
SM count: 132
L2 bytes: 62914560
ECC: on
SM clock kHz: 1980000
memory clock kHz: 3201000
memory bus bits: 6144
memory bytes: 150754820096
runtime: CUDA 13.0
driver: supports CUDA 13.0
END
"""
NVCC = """\
#!/bin/sh
echo "$@" >> "{fakes}/nvcc.log"
case "$*" in *--version*) echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0;; esac
[ -e "{fakes}/nvcc-fails" ] && {{ echo "ptxas fatal: no" >&2; exit 2; }}
script="{fakes}/program.sh"
while [ $# -gt 0 ]; do
  case "$1" in -o) out="$2"; shift;; *gpu_probe.cu) script="{fakes}/probe.sh";; esac
  shift
done
{{ echo '#!/bin/sh'; cat "$script"; }} > "$out"
chmod +x "$out"
"""


def program(stdout: str = STDOUT, stderr: str = "", status: int = 0, before: str = "") -> str:
    """A shell script that stands for the lesson's program."""
    return (f"{before}\ncat <<'END'\n{stdout}END\n"
            + (f"cat >&2 <<'END'\n{stderr}END\n" if stderr else "") + f"exit {status}\n")


def floor_output(times: dict[tuple[int, str, str], float],
                 sweep: list[tuple[int, str, float, float, float]], wins: str) -> str:
    """What lesson 29.2 prints of such times in ms: (size, input, kernel) and the sweep's rows."""
    lines = ["GPU:      NVIDIA H200, compute capability 9.0", "",
             "      size  input          kernel              time (ms)  rate (GB/s)  of floor (%)"
             "  CUB ratio"]
    for (size, name, kernel), ms in times.items():
        floor, cub = times[size, name, "sum, 16-byte loads"], times[size, name, FLOOR_KERNELS[3]]
        lines.append(f"{size:10d}  {name:<13}  {kernel:<18}  {ms:9.5f}  "
                     f"{size * 1e-6 / ms:11.1f}  {100 * floor / ms:12.1f}  {cub / ms:9.2f}")
    lines += ["", "      size  input          CUB (us)  one table (us)  column per lane (us)"]
    for size, name, cub, one, lane in sweep:
        lines.append(f"{size:10d}  {name:<13}  {1e3 * cub:8.2f}  {1e3 * one:14.2f}  "
                     f"{1e3 * lane:20.2f}")
    largest = max(size for size, _, _ in times)
    least = {kernel: min(100 * times[largest, name, "sum, 16-byte loads"]
                         / times[largest, name, kernel] for name in FLOOR_INPUTS)
             for kernel in FLOOR_KERNELS}
    ratio = min(times[largest, name, "sum, byte loads"] / times[largest, name, "sum, 16-byte loads"]
                for name in FLOOR_INPUTS)
    return "\n".join([
        *lines, "", "The largest size at which a kernel wins:", wins, "",
        f"At {largest} bytes the sum by byte loads, the floor, takes {ratio:.1f} times as long as",
        f"the sum by 16-byte loads. On the worst input one table a block gets to "
        f"{least['one table a block']:.1f} % of",
        f"that floor, and a column per lane to {least['column per lane']:.1f} %: and so on.", ""])


FLOOR_KERNELS = ("sum, byte loads", "sum, 16-byte loads", "sum, tuned further", "CUB HistogramEven",
                 "day 29, byte loads", "one table a block", "8 copies", "16 copies",
                 "column per lane")
FLOOR_INPUTS = ("uniform bytes", "english text", "all one byte")


class EvidenceCourse(unittest.TestCase):
    """Sets up the course in self.root, with a fake GPU on PATH."""

    def setUp(self) -> None:
        if not shutil.which("git"):
            self.skipTest("no git; install the Debian package git")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        top = Path(folder.name).resolve()
        self.root, self.fakes = top / "course", top / "bin"
        self.fakes.mkdir()
        self.fake("nvcc", NVCC.format(fakes=self.fakes))
        self.fake("nvidia-smi", "#!/bin/sh\necho 580.159.04, 3201\n")
        (self.fakes / "probe.sh").write_text(PROBE)
        (self.fakes / "program.sh").write_text(program())
        self.write("CMakeLists.txt", "add_lesson(day29/histogram.cu LABELS gpu bench)\n")
        self.write("day29/histogram.cu", LESSON)
        self.write("expected/day29/histogram.txt", TRANSCRIPT)
        self.git("init", "-q")
        self.commit()
        # The caller's own settings of git must not lead elsewhere.
        variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        variables["PATH"] = f"{self.fakes}{os.pathsep}{os.environ['PATH']}"
        variables.pop("NVCC_CCBIN", None)
        patch = mock.patch.dict(os.environ, variables, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def fake(self, name: str, text: str) -> None:
        (self.fakes / name).write_text(text)
        (self.fakes / name).chmod(0o755)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *arguments: str) -> str:
        variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        return subprocess.run(
            ["git", "-C", str(self.root), "-c", "user.name=A", "-c", "user.email=a@b.invalid",
             "-c", "commit.gpgsign=false", *arguments],
            check=True, capture_output=True, text=True, env=variables).stdout.strip()

    def commit(self) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "A state to build from")
        return self.git("rev-parse", "HEAD")

    def call(self, main, *arguments: str) -> tuple[int, str]:
        """Run a tool's main on this course: its exit status and all it printed."""
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            try:
                status = main(list(arguments), root=self.root)
            except SystemExit as stop:
                status = stop.code
        return status, text.getvalue()

    def evidence(self) -> list[Path]:
        """All that lies in folders of evidence, hidden files too."""
        return sorted(path for path in self.root.glob("*/evidence/*"))
