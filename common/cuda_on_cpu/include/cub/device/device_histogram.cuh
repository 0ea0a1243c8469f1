// SPDX-License-Identifier: MIT
//
// A stand-in for CUB's histogram: the same two calls, counted serially on the CPU. It lets a lesson
// that compares itself with CUB build and verify; it says nothing about CUB's speed.
#pragma once

#include <cstddef>

#include "../../cuda_runtime.h"

namespace cub {

struct DeviceHistogram {
  // levels - 1 bins between lower (included) and upper (excluded), all equally wide.
  template <class Sample, class Counter, class Level, class Count>
  static cudaError_t HistogramEven(void* temporary, std::size_t& temporary_bytes,
                                   const Sample* d_samples, Counter* d_histogram, int levels,
                                   Level lower, Level upper, Count samples,
                                   cudaStream_t = nullptr) {
    static_assert(sizeof(Sample) == 1, "this stand-in counts 8-bit samples only");
    if (temporary == nullptr) {
      temporary_bytes = 1;
      return cudaSuccess;
    }
    if (levels < 2 || !(lower < upper)) return cudaErrorInvalidValue;
    const cuda_on_cpu::DeviceAccess access;
    const int bins = levels - 1;
    for (int bin = 0; bin < bins; ++bin) d_histogram[bin] = 0;
    for (Count i = 0; i < samples; ++i) {
      const double sample = static_cast<double>(d_samples[i]);
      const double low = static_cast<double>(lower), high = static_cast<double>(upper);
      if (sample < low || sample >= high) continue;
      ++d_histogram[static_cast<int>((sample - low) * bins / (high - low))];
    }
    return cudaSuccess;
  }
};

}  // namespace cub
