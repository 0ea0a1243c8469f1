#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what running a kernel on the CPU costs, and what compiling a lesson does.

    python3 common/cuda_on_cpu/benchmark/run.py [--bytes N]

Prints, for Boost.Context where it is installed and for ucontext, the CPU time of histogram.cu's
kernel and its ratio to plain loops in the same order, measured side by side in one run. Exit status
1 when a ratio or a compile time exceeds its bound.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from tools import cuda_on_cpu  # noqa: E402

BOUNDS = {"Boost.Context": 1.6, "ucontext": 3.5}  # times plain loops
COMPILE_BOUND = 3.0  # CPU seconds a lesson


def measure(build: cuda_on_cpu.Build) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        program = cuda_on_cpu.compile_program(HERE / "histogram.cu", build, Path(directory))
        done = subprocess.run([str(program)], text=True, capture_output=True, check=True,
                              env={**os.environ, "CUDA_ON_CPU_WORKERS": "1"})
    return {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}


def compile_seconds(source: Path, build: cuda_on_cpu.Build) -> float:
    """The CPU time from the .cu file to the program, when the runtime is there."""
    cuda_on_cpu.build_runtime(build)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as directory:
        cuda_on_cpu.compile_program(source, build, Path(directory))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bytes", type=int, default=64 << 20, help="size of the input")
    parser.add_argument("--compiler", default="g++" if shutil.which("g++") else "clang++")
    options = parser.parse_args()
    define = (f"BENCHMARK_BYTES={options.bytes}",)
    ways = {"ucontext": cuda_on_cpu.Build(options.compiler, defines=define)}
    if cuda_on_cpu.has_boost_context(options.compiler):
        ways["Boost.Context"] = cuda_on_cpu.Build(options.compiler, defines=define, boost=True)
    else:
        print("Boost.Context is not installed (package libboost-context-dev): not measured")

    ok = True
    print(f"byte histogram, {options.bytes} bytes, 1024 x 256 threads, one worker; CPU seconds")
    print(f"{'':16}{'plain loops':>14}{'kernel':>10}{'ratio':>8}{'bound':>8}"
          f"{'OS threads':>14}{'ratio':>8}")
    for name, build in ways.items():
        times = measure(build)
        ratio = times["kernel"] / times["plain"]
        ok &= ratio <= BOUNDS[name]
        print(f"{name:16}{times['plain']:14.3f}{times['kernel']:10.3f}{ratio:8.2f}"
              f"{BOUNDS[name]:8.1f}{times['os_threads']:14.3f}"
              f"{times['os_threads'] / times['plain']:8.2f}", flush=True)

    print(f"\ncompiling a lesson, CPU seconds (bound {COMPILE_BOUND})")
    for source in sorted(cuda_on_cpu.ROOT.glob("[cd]*[0-9]/*.cu")):
        seconds = compile_seconds(source, cuda_on_cpu.Build(options.compiler))
        ok &= seconds <= COMPILE_BOUND
        print(f"{source.relative_to(cuda_on_cpu.ROOT)!s:50}{seconds:6.2f}", flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
