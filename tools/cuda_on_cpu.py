#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds a CUDA source file for the CPU, with g++ or clang++ alone, and runs its real kernels.

    python3 tools/cuda_on_cpu.py FILE.cu [-- ARGUMENTS OF THE PROGRAM]
    python3 tools/cuda_on_cpu.py FILE.cu --check               watch device memory
    python3 tools/cuda_on_cpu.py FILE.cu --sanitize address    every access out of bounds
    python3 tools/cuda_on_cpu.py FILE.cu --sanitize thread     races, missing barriers
    python3 tools/cuda_on_cpu.py FILE.cu --order descending    what a barrier would have hidden
    python3 tools/cuda_on_cpu.py FILE.cu --debug --keep        keep a program for the debugger
    python3 tools/cuda_on_cpu.py --rewrite IN.cu OUT.cpp       only turn it into C++

Exit status: the program's own (128 + N when signal N ended it); 86 when the runtime reported a
fault, 66 when the thread sanitizer did; 1 when the file does not compile; 2 for wrong use or a
construct that is not supported, which is named by file and line.

common/cuda_on_cpu/README.md explains how it works and what it cannot show.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
from tools import course  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "common" / "cuda_on_cpu"
INCLUDE = HOME / "include"
SOURCES = sorted((HOME / "source").glob("*.cpp"))

# What no C++ compiler would understand, or would misunderstand, and why.
UNSUPPORTED = (
    (r"\b(?:asm|__asm|__asm__)\b", "inline assembly (PTX) runs only on a GPU"),
    (r"\b__managed__\b", "__managed__ variables are not supported; use cudaMallocManaged()"),
    (r"\b__cluster_dims__\b", "thread block clusters are not supported"),
    (r"\b(?:texture|surface)\s*<", "textures and surfaces are not supported"),
    (r"\b__shared__\s+extern\b", "write extern __shared__, not __shared__ extern"),
    (r"\bcudaLaunch\w*Kernel\w*\b", "launch kernels by <<<...>>> here"),
    (r"#\s*include\s*<\s*(?:cooperative_groups|cuda/|cuda_(?:fp|bf)\d+|mma\.h|thrust/)[^>]*>",
     "this header has no counterpart on the CPU"),
)
CUB_INCLUDE = re.compile(r"#\s*include\s*<\s*(cub/[^>\s]+)\s*>")


class Unsupported(Exception):
    """A construct that cannot be turned into C++: 'file:line: error: why'."""


@dataclass
class Edit:
    """Replaces `length` characters at `at`."""

    at: int
    length: int
    text: str


def blank_comments_and_literals(text: str) -> str:
    """The same text, as long, with every comment and literal replaced by blanks."""
    out = list(text)
    n = len(text)

    def blank(start: int, end: int) -> int:
        for k in range(start, min(end, n)):
            if out[k] != "\n":
                out[k] = " "
        return end

    i = 0
    while i < n:
        two = text[i:i + 2]
        c = text[i]
        if two == "//":
            end = i
            while end < n and not (text[end] == "\n" and text[end - 1] != "\\"):
                end += 1
            i = blank(i, end)
        elif two == "/*":
            end = text.find("*/", i + 2)
            i = blank(i, n if end < 0 else end + 2)
        elif c == '"' and re.search(r"(?<![A-Za-z0-9_])(?:u8|u|U|L)?R$", text[max(0, i - 4):i]):
            opening = text.find("(", i)
            closing = ")" + text[i + 1:opening] + '"'
            end = text.find(closing, opening)
            i = blank(i, n if end < 0 else end + len(closing))
        elif c == '"' or (c == "'" and not is_digit_separator(text, i)):
            end = i + 1
            while end < n and text[end] not in (c, "\n"):
                end += 2 if text[end] == "\\" else 1
            i = blank(i, end + 1)
        else:
            i += 1
    return "".join(out)


def is_digit_separator(text: str, at: int) -> bool:
    """Whether the quote at `at` stands inside a number, as in 1'000'000."""
    start = at
    while start > 0 and (text[start - 1].isalnum() or text[start - 1] in "_'."):
        start -= 1
    return start < at and text[start].isdigit()


class Rewriter:
    """Turns the text of one .cu file into C++ without adding or removing a line."""

    def __init__(self, text: str, name: str):
        self.text = text
        self.name = name
        self.code = blank_comments_and_literals(text)
        self.edits: list[Edit] = []

    def fail(self, at: int, why: str) -> None:
        line = self.text.count("\n", 0, at) + 1
        raise Unsupported(f"{self.name}:{line}: error: {why}")

    def run(self) -> str:
        self.reject_unsupported()
        self.rewrite_launches()
        self.rewrite_dynamic_shared()
        for match in re.finditer(r"\b__noinline__\b", self.code):
            if not re.search(r"__attribute__\s*\(\(\s*$", self.code[:match.start()]):
                # Not a macro in a header, because the standard library uses the name, too.
                self.edits.append(Edit(match.start(), 12, "__attribute__((noinline))"))
        quoted = self.name.replace("\\", "\\\\").replace('"', '\\"')
        out = [f'#include <cuda_runtime.h>\n#line 1 "{quoted}"\n']
        at = 0
        for edit in sorted(self.edits, key=lambda e: e.at):
            out += [self.text[at:edit.at], edit.text]
            at = edit.at + edit.length
        out.append(self.text[at:])
        return "".join(out)

    def reject_unsupported(self) -> None:
        for pattern, why in UNSUPPORTED:
            match = re.search(pattern, self.code)
            if match:
                self.fail(match.start(), why)
        for match in CUB_INCLUDE.finditer(self.code):
            if not (INCLUDE / match.group(1)).is_file():
                self.fail(match.start(), f"there is no stand-in for {match.group(1)}")

    # -- kernel<<<...>>>(...)

    def rewrite_launches(self) -> None:
        at = self.code.find("<<<")
        while at >= 0:
            begin, end = self.callee(at)
            close = self.closing_chevrons(at + 3)
            after = close + 3
            while after < len(self.code) and self.code[after].isspace():
                after += 1
            if self.code[after:after + 1] != "(":
                self.fail(close, "a kernel launch needs ( after >>>")
            name = " ".join(self.text[begin:end].split()).replace("\\", "").replace('"', "'")
            self.edits += [
                Edit(begin, 0, "[&](auto... a_) { "),
                Edit(end, 0, "(a_...); } "),
                Edit(at, 3, f'<<::cuda_on_cpu::Config("{name}", '),
                Edit(close, 3, ").args"),
            ]
            at = self.code.find("<<<", close)

    def callee(self, chevrons: int) -> tuple[int, int]:
        """Where the kernel's name, with its template arguments, begins and ends."""
        code = self.code
        end = chevrons
        while end > 0 and code[end - 1].isspace():
            end -= 1
        at = end
        while True:
            if at > 0 and code[at - 1] == ">":
                at = self.opening_angle(at - 1)
                while at > 0 and code[at - 1].isspace():
                    at -= 1
            start = at
            while at > 0 and (code[at - 1].isalnum() or code[at - 1] == "_"):
                at -= 1
            if at == start or code[at].isdigit():
                self.fail(chevrons, "a kernel launch needs the kernel's name before <<<")
            if code[at - 2:at] != "::" or at < 2:
                break
            at -= 2
            if at == 0 or not (code[at - 1].isalnum() or code[at - 1] in "_>"):
                break  # ::kernel
        if code[:at].rstrip().endswith((".", "->")):
            self.fail(chevrons, "a kernel launch needs the kernel's name before <<<")
        return at, end

    def opening_angle(self, closing: int) -> int:
        angles = parens = 0
        for at in range(closing, -1, -1):
            c = self.code[at]
            if c in ")]}":
                parens += 1
            elif c in "([{":
                parens -= 1
            elif parens == 0 and c == ">":
                angles += 1
            elif parens == 0 and c == "<":
                angles -= 1
                if angles == 0:
                    return at
            if parens < 0 or c == ";":
                break
        self.fail(closing, "cannot read the template arguments before <<<")
        raise AssertionError

    def closing_chevrons(self, start: int) -> int:
        depth = 0
        for at in range(start, len(self.code)):
            c = self.code[at]
            if c in "([{":
                depth += 1
            elif c in ")]}":
                depth -= 1
            if depth == 0 and self.code.startswith(">>>", at):
                return at
            if depth < 0 or (c == ";" and depth == 0):
                break
        self.fail(start, "kernel launch: <<< without >>>")
        raise AssertionError

    # -- extern __shared__ T name[];

    def rewrite_dynamic_shared(self) -> None:
        for match in re.finditer(r"\bextern\b[^;{}]*?\b__shared__\b([^;{}]*);", self.code):
            declaration = re.sub(r"\b(extern|__shared__)\b", "", self.code[match.start():
                                                                           match.end() - 1])
            declaration = remove_calls(declaration, ("__align__", "alignas"))
            found = re.fullmatch(r"\s*(.*?)\b(\w+)\s*((?:\[[^\]]*\]\s*)+)", declaration, re.S)
            if not found or not found.group(1).strip() or "," in outside_angles(declaration):
                self.fail(match.start(), "expected: extern __shared__ TYPE NAME[];")
            kind, name = " ".join(found.group(1).split()), found.group(2)
            bounds = "".join(found.group(3).split())
            if self.inside_function(match.start()):
                text = f"auto& {name} = ::cuda_on_cpu::dynamicShared<{kind}{bounds}>();"
            elif bounds == "[]":
                text = f"[[maybe_unused]] static const ::cuda_on_cpu::DynamicShared<{kind}> {name};"
            else:
                self.fail(match.start(), "outside a function only extern __shared__ T NAME[]")
            text += "\n" * self.text.count("\n", match.start(), match.end())
            self.edits.append(Edit(match.start(), match.end() - match.start(), text))

    def inside_function(self, at: int) -> bool:
        """Whether a brace is open that is not a namespace's or an extern "C" block's."""
        stack: list[bool] = []
        since = 0
        for match in re.finditer(r"[{};]", self.code[:at]):
            if match.group() == "{":
                head = self.code[since:match.start()]
                stack.append(not re.search(r"\bnamespace\b[^()=]*$|\bextern\s*$", head))
            elif match.group() == "}" and stack:
                stack.pop()
            since = match.end()
        return any(stack)


def remove_calls(text: str, names: tuple[str, ...]) -> str:
    """Removes NAME(...), with balanced parentheses."""
    for name in names:
        while match := re.search(rf"\b{name}\s*\(", text):
            depth, end = 1, match.end()
            while end < len(text) and depth:
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
            text = text[:match.start()] + text[end:]
    return text


def outside_angles(text: str) -> str:
    """The text without what stands between < and >."""
    previous = None
    while previous != text:
        previous, text = text, re.sub(r"<[^<>]*>", "", text)
    return text


def rewrite_file(source: Path, name: str) -> str:
    try:
        text = source.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Unsupported(f"{name}: error: not valid UTF-8 at byte {error.start}") from None
    rewriter = Rewriter(text, name)
    check_local_includes(rewriter, source, {source.resolve()})
    return rewriter.run()


def check_local_includes(rewriter: Rewriter, source: Path, seen: set[Path]) -> None:
    """Included files are compiled as they are, so they must hold nothing to rewrite."""
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', rewriter.text, re.M):
        path = (source.parent / match.group(1)).resolve()
        if rewriter.code[match.start():match.end()].strip() == "" or path in seen:
            continue
        if not path.is_file() or HOME in path.parents:
            continue
        seen.add(path)
        try:
            shown = os.path.relpath(path)
            included = Rewriter(path.read_text(encoding="utf-8"), shown)
        except (OSError, UnicodeDecodeError):
            continue
        found = re.search(r"<<<|\bextern\b[^;{}]*?\b__shared__\b", included.code)
        if found:
            included.fail(found.start(), "launches and extern __shared__ are supported only in the "
                                         ".cu file itself, not in a file that it includes")
        included.reject_unsupported()
        check_local_includes(included, path, seen)


# -- building and running


@dataclass
class Build:
    """How to compile: the same for the program and for the runtime it is linked with."""

    compiler: str
    sanitize: str | None = None
    check: bool = False
    debug: bool = False
    defines: tuple[str, ...] = ()
    boost: bool = False

    def is_clang(self) -> bool:
        return "clang" in Path(self.compiler).name

    def mode_defines(self) -> list[str]:
        flags = []
        if self.sanitize:
            flags.append(f"-DCUDA_ON_CPU_{self.sanitize.upper()}_SANITIZER")
        return flags

    def program_flags(self) -> list[str]:
        flags = ["-std=c++17", "-pthread", "-Wno-unknown-pragmas", f"-I{INCLUDE}"]
        # -g1 tells the lines, which the reports need; a debugger needs all, and takes long.
        flags += ["-O0", "-g"] if self.debug else ["-O1" if self.sanitize else "-O2", "-g1"]
        flags += self.mode_defines()
        if self.check:
            flags.append("-DCUDA_ON_CPU_CHECK")
        if self.sanitize == "address":
            flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
                      "-fno-omit-frame-pointer"]
        elif self.sanitize == "thread":
            flags += ["-fsanitize=thread"]
            # Calls that source/thread_sanitizer.cpp answers.
            flags += (["-mllvm", "-tsan-distinguish-volatile=1"] if self.is_clang()
                      else ["--param", "tsan-distinguish-volatile=1"])
        return flags + [f"-D{define}" for define in self.defines]

    def runtime_flags(self) -> list[str]:
        flags = ["-std=c++17", "-g", "-O2", "-pthread", "-fno-omit-frame-pointer", f"-I{INCLUDE}"]
        flags += self.mode_defines()
        if self.boost:
            flags.append("-DCUDA_ON_CPU_BOOST_CONTEXT")
        return flags

    def link_flags(self) -> list[str]:
        return ["-lboost_context"] if self.boost else []


def has_boost_context(compiler: str) -> bool:
    """Whether this compiler finds Boost.Context's header and library."""
    probe = "#if !__has_include(<boost/context/fiber.hpp>)\n#error\n#endif\n"
    found = subprocess.run([compiler, "-E", "-x", "c++", "-"], input=probe, text=True,
                           capture_output=True, check=False)
    if found.returncode != 0:
        return False
    for library in ("libboost_context.so", "libboost_context.a"):
        where = subprocess.run([compiler, f"-print-file-name={library}"], text=True,
                               capture_output=True, check=False).stdout.strip()
        if os.path.isabs(where) and os.path.exists(where):
            return True
    return False


def cache_directory() -> Path:
    """A private directory for compiled runtimes, which depend only on this repository's files."""
    path = Path(os.environ.get("CUDA_ON_CPU_CACHE")
                or Path(tempfile.gettempdir()) / f"cuda_on_cpu-{os.getuid()}")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise SystemExit(f"cuda_on_cpu.py: {path} belongs to somebody else; set CUDA_ON_CPU_CACHE")
    return path


def build_runtime(build: Build) -> Path:
    """Compiles the runtime for this way of building, once; returns the archive."""
    flags = build.runtime_flags()
    key = hashlib.sha256(os.fsencode(" ".join([build.compiler, *flags])))
    version = subprocess.run([build.compiler, "--version"], capture_output=True, check=False)
    key.update(version.stdout)
    for path in sorted((*SOURCES, *(HOME / "source").glob("*.h"), *INCLUDE.rglob("*.h"))):
        key.update(path.name.encode() + path.read_bytes())
    archive = cache_directory() / f"runtime-{key.hexdigest()[:20]}.a"
    if archive.exists():
        return archive
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        def compile_one(source: Path) -> Path:
            target = Path(scratch) / (source.stem + ".o")
            run_compiler([build.compiler, *flags, "-c", str(source), "-o", str(target)])
            return target

        with concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            objects = list(pool.map(compile_one, SOURCES))
        finished = Path(scratch) / "runtime.a"
        run_compiler(["ar", "rcs", str(finished), *map(str, objects)])
        os.replace(finished, archive)
    return archive


class CompileError(Exception):
    """The compiler's own messages have been printed."""


def run_compiler(command: list[str]) -> None:
    # A compiler that is ended may leave temporary files, so they get a directory that goes away.
    with tempfile.TemporaryDirectory(prefix="cuda_on_cpu-", ignore_cleanup_errors=True) as scratch:
        try:
            process = subprocess.Popen(command, env={**os.environ, "TMPDIR": scratch})
        except FileNotFoundError:
            raise SystemExit(f"cuda_on_cpu.py: {command[0]} is not installed") from None
        try:
            if process.wait() != 0:
                raise CompileError
        finally:
            process.terminate()
            process.wait()


def compile_program(source: Path, build: Build, directory: Path) -> Path:
    """Builds the program in the directory; returns its path."""
    generated = directory / (source.stem + ".cpp")
    course.write_atomically(generated, rewrite_file(source, str(source)))
    runtime = build_runtime(build)
    program = directory / source.stem
    run_compiler([build.compiler, *build.program_flags(), f"-iquote{source.parent}",
                  str(generated), "-o", str(program), str(runtime), *build.link_flags()])
    return program


def run_environment(options: argparse.Namespace) -> dict[str, str]:
    environment = dict(os.environ)
    for name, value in (("WORKERS", options.workers), ("ORDER", options.order),
                        ("CHECK", 1 if options.check else None)):
        if value is not None:
            environment[f"CUDA_ON_CPU_{name}"] = str(value)
    if options.sanitize == "address":
        environment.setdefault("ASAN_OPTIONS", "detect_leaks=0")
        environment.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
    return environment


def fixed_addresses() -> None:
    """Older sanitizers cannot start where the kernel scatters addresses widely."""
    addr_no_randomize = 0x0040000
    try:
        ctypes.CDLL(None).personality(addr_no_randomize)
    except (AttributeError, OSError):
        pass


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    arguments: list[str] = []
    if "--" in argv:
        at = argv.index("--")
        argv, arguments = argv[:at], argv[at + 1:]
    parser = course.Parser(__doc__.split("\n\n", maxsplit=1)[0],
                           epilog="Arguments of the program come after --.")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE.cu")
    parser.add_argument("--check", action="store_true",
                        help="report accesses outside device memory, host pointers in kernels, "
                             "device pointers on the host; unset shared memory holds 0xcd")
    parser.add_argument("--sanitize", choices=("address", "thread"))
    parser.add_argument("--order", metavar="ORDER",
                        help="in which the threads of a block start: ascending, descending or "
                             "random:SEED")
    parser.add_argument("--workers", type=int, metavar="N", help="CPU threads that run blocks")
    parser.add_argument("--define", action="append", default=[], metavar="X=Y")
    parser.add_argument("--compiler", default=os.environ.get("CXX") or None, metavar="g++|clang++")
    parser.add_argument("--debug", action="store_true", help="compile with -O0, for a debugger")
    parser.add_argument("--ucontext", action="store_true",
                        help="do without Boost.Context even if it is installed")
    parser.add_argument("--keep", action="store_true",
                        help="keep the program and the C++ file, and say where")
    parser.add_argument("--build-only", metavar="DIR", type=Path,
                        help="build into DIR and do not run")
    parser.add_argument("--rewrite", nargs=2, type=Path, metavar=("IN.cu", "OUT.cpp"))
    options = parser.parse_args(argv)
    options.arguments = arguments
    if (options.file is None) == (options.rewrite is None):
        parser.error("give one FILE.cu, or --rewrite IN OUT")
    if options.check and options.sanitize:
        parser.error("--check and --sanitize are two ways to build; choose one")
    if options.order and not re.fullmatch(r"ascending|descending|random:\d+", options.order):
        parser.error("--order is ascending, descending or random:SEED")
    if options.workers is not None and not 1 <= options.workers <= 16:
        parser.error("--workers is a number from 1 to 16")
    if options.sanitize == "address" and (options.workers or 1) > 1:
        parser.error("--sanitize address has one worker: shared arrays are ordinary statics then")
    source = options.file or options.rewrite[0]
    if source.is_dir():
        parser.error(f"{source} is a directory; name a .cu file in it")
    if not source.is_file():
        parser.error(f"{source}: no such file")
    if options.compiler is None:
        options.compiler = next(filter(shutil.which, ("g++", "clang++")), "g++")
    if not options.rewrite and not shutil.which(options.compiler):
        parser.error(f"there is no {options.compiler}; install the Debian package g++")
    return options


def main(argv: list[str] | None = None) -> int:
    options = parse_arguments(sys.argv[1:] if argv is None else argv)
    try:
        if options.rewrite:
            source, target = options.rewrite
            course.write_atomically(target, rewrite_file(source, str(source)))
            return 0
        build = Build(options.compiler, options.sanitize, options.check, options.debug,
                      tuple(options.define),
                      not options.ucontext and has_boost_context(options.compiler))
        if options.build_only:
            options.build_only.mkdir(parents=True, exist_ok=True)
            compile_program(options.file, build, options.build_only)
            return 0
        directory = Path(tempfile.mkdtemp(prefix="cuda_on_cpu-"))
        try:
            program = compile_program(options.file, build, directory)
            command = [str(program), *options.arguments]
            if options.keep:
                print(f"cuda_on_cpu.py: kept {shlex.join(command)}", file=sys.stderr)
            status = subprocess.run(command, env=run_environment(options), check=False,
                                    preexec_fn=fixed_addresses if options.sanitize else None)
            return status.returncode if status.returncode >= 0 else 128 - status.returncode
        finally:
            if not options.keep:
                shutil.rmtree(directory, ignore_errors=True)
    except Unsupported as problem:
        print(problem, file=sys.stderr)
        return 2
    except CompileError:
        return 1


if __name__ == "__main__":
    sys.exit(course.run_tool(main))
