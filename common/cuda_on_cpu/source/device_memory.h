// SPDX-License-Identifier: MIT
//
// Device memory: ordinary memory, but each cudaMalloc block has pages of its own with closed pages
// on both sides, and the registry knows them all. With CUDA_ON_CPU_CHECK=1 the pages of device
// memory are closed to host code, open only during launches, copies and fills.
#pragma once

#include <cstddef>

#include "cuda_on_cpu/launch.h"

namespace cuda_on_cpu {

struct DeviceBlock {
  char* map;  // with the closed pages
  std::size_t map_bytes;
  char* data;
  std::size_t bytes;
  bool freed;    // kept closed, in the checks only
  bool managed;  // open to the host at all times
};

// The block whose pages hold the address, or null. Safe in a signal handler.
const DeviceBlock* findBlock(const void* address);

// With the checks on: reports a kernel argument that points to host memory or to freed memory, and
// after the launch, whether the bytes between a block's end and its closed page were written to.
void checkPointers(const LaunchRequest& request);
void checkCanaries(const LaunchRequest& request);

}  // namespace cuda_on_cpu
