// SPDX-License-Identifier: MIT
//
// What the environment asks for. tools/cuda_on_cpu.py sets these variables from its options.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuda_on_cpu {

// Status of a program that one of the runtime's reports has ended.
constexpr int kReportStatus = 86;

enum class Order { kAscending, kDescending, kRandom };

struct Options {
  unsigned workers;         // CUDA_ON_CPU_WORKERS: OS threads that run blocks
  bool check;               // CUDA_ON_CPU_CHECK=1: watch device memory and the arguments
  Order order;              // CUDA_ON_CPU_ORDER=descending or random:SEED
  std::uint64_t seed;       //
  std::size_t stack_bytes;  // CUDA_ON_CPU_STACK: bytes of a CUDA thread's stack
  double patience_seconds;  // CUDA_ON_CPU_PATIENCE: no progress for so long is an endless spin
};

// Read once; a value that cannot be understood ends the program.
const Options& options();

}  // namespace cuda_on_cpu
