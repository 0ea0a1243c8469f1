// SPDX-License-Identifier: MIT
//
// Home of the block `cuda_check`. Lessons carry it verbatim, because a lesson includes no header
// of ours; a test compares every copy with this one.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

// common: cuda_check
// Evaluates a CUDA call once. On an error it prints the place, the call and the reason to stderr
// and ends the program with status 1.
#define CUDA_CHECK(call)                                                                   \
  do {                                                                                     \
    const cudaError_t error_ = (call);                                                     \
    if (error_ != cudaSuccess) {                                                           \
      std::fprintf(stderr, "%s:%d: %s failed: %s (error %d)\n", __FILE__, __LINE__, #call, \
                   cudaGetErrorString(error_), static_cast<int>(error_));                  \
      std::exit(1);                                                                        \
    }                                                                                      \
  } while (0)
// end common: cuda_check
