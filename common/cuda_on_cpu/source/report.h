// SPDX-License-Identifier: MIT
//
// The messages that end a program. All begin with "cuda_on_cpu: " and end it with kReportStatus.
#pragma once

namespace cuda_on_cpu {

class Worker;

// The threads of a block cannot go on: says why, and which threads wait where.
[[noreturn]] void reportBlock(const Worker& worker, const char* why);

// One line. `format` is that of printf. Where a kernel runs, its name, block and thread come first.
[[noreturn]] void reportLine(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Ends the program unless this is a kernel that runs.
void requireKernel(const char* what, const char* file, int line);

// Reports invalid addresses and stack overflows. To be called once on every OS thread that runs
// kernels, and on the host's.
void watchAddresses();

// The file and line in the .cu file of the faulting instruction, if binutils can tell; or "".
const char* sourceLine(void* instruction);

}  // namespace cuda_on_cpu
