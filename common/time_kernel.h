// SPDX-License-Identifier: MIT
//
// Home of the block `time_kernel`. It needs the block `cuda_check` above it.
#pragma once

#include "cuda_check.h"

// common: time_kernel
// Runs launch() `warmups` times untimed, then `runs` times (at least 1) between two events.
// Returns the mean time of a timed run in milliseconds. The events sit on the GPU's own time line,
// so waiting for the second one is the only synchronization the measurement needs. A time that is
// not positive cannot be true: it is reported on stderr and ends the program with status 1.
template <class Launch>
float timeKernel(int warmups, int runs, Launch launch) {
  cudaEvent_t start, stop;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&stop));
  for (int run = 0; run < warmups; ++run) launch();
  CUDA_CHECK(cudaEventRecord(start));
  for (int run = 0; run < runs; ++run) launch();
  CUDA_CHECK(cudaEventRecord(stop));
  CUDA_CHECK(cudaGetLastError());
  CUDA_CHECK(cudaEventSynchronize(stop));
  float total_ms = 0.0f;
  CUDA_CHECK(cudaEventElapsedTime(&total_ms, start, stop));
  CUDA_CHECK(cudaEventDestroy(start));
  CUDA_CHECK(cudaEventDestroy(stop));
  if (!(total_ms > 0.0f)) {
    std::fprintf(stderr, "a measured time of %g ms cannot be true; the timing is void\n", total_ms);
    std::exit(1);
  }
  return total_ms / static_cast<float>(runs);
}
// end common: time_kernel
