// SPDX-License-Identifier: MIT
//
// Warp functions: a rendezvous of the lanes in the mask. The last lane to arrive computes the
// results of all (source/warp.cpp). As on a GPU, only __syncwarp() orders memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "qualifiers.h"

namespace cuda_on_cpu {

enum class WarpFunction : std::uint8_t {
  kSync,
  kShuffle,
  kShuffleUp,
  kShuffleDown,
  kShuffleXor,
  kBallot,
  kAny,
  kAll,
  kMatchAny,
  kMatchAll,
  kAdd,
  kAnd,
  kOr,
  kXor,
  kMinSigned,
  kMaxSigned,
  kMinUnsigned,
  kMaxUnsigned,
};

// `operand` is the lane, the distance or the lane mask of a shuffle; `width` its segment.
std::uint64_t warpFunction(WarpFunction function, unsigned mask, std::uint64_t value, int operand,
                           int width, const char* file, int line);
unsigned activeMask(const char* file, int line);

template <class T>
inline std::uint64_t toBits(T value) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "warp functions take 32 or 64 bits");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
inline T fromBits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
inline T shuffle(WarpFunction function, unsigned mask, T value, int operand, int width,
                 const char* file, int line) {
  return fromBits<T>(warpFunction(function, mask, toBits(value), operand, width, file, line));
}

}  // namespace cuda_on_cpu

template <class T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, CUDA_ON_CPU_CALLER) {
  using namespace cuda_on_cpu;
  return shuffle(WarpFunction::kShuffle, mask, value, lane, width, file, line);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                        CUDA_ON_CPU_CALLER) {
  using namespace cuda_on_cpu;
  return shuffle(WarpFunction::kShuffleUp, mask, value, static_cast<int>(delta), width, file, line);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                          CUDA_ON_CPU_CALLER) {
  using namespace cuda_on_cpu;
  return shuffle(WarpFunction::kShuffleDown, mask, value, static_cast<int>(delta), width, file,
                 line);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                         CUDA_ON_CPU_CALLER) {
  using namespace cuda_on_cpu;
  return shuffle(WarpFunction::kShuffleXor, mask, value, lane_mask, width, file, line);
}

inline void __syncwarp(unsigned mask = 0xffffffffu, CUDA_ON_CPU_CALLER) {
  cuda_on_cpu::warpFunction(cuda_on_cpu::WarpFunction::kSync, mask, 0, 0, 32, file, line);
}
inline unsigned __activemask(CUDA_ON_CPU_CALLER) {
  return cuda_on_cpu::activeMask(file, line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, CUDA_ON_CPU_CALLER) {
  using namespace cuda_on_cpu;
  return static_cast<unsigned>(
      warpFunction(WarpFunction::kBallot, mask, predicate != 0, 0, 32, file, line));
}
inline int __any_sync(unsigned mask, int predicate, CUDA_ON_CPU_CALLER) {
  using namespace cuda_on_cpu;
  return static_cast<int>(
      warpFunction(WarpFunction::kAny, mask, predicate != 0, 0, 32, file, line));
}
inline int __all_sync(unsigned mask, int predicate, CUDA_ON_CPU_CALLER) {
  using namespace cuda_on_cpu;
  return static_cast<int>(
      warpFunction(WarpFunction::kAll, mask, predicate != 0, 0, 32, file, line));
}
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, CUDA_ON_CPU_CALLER) {
  using namespace cuda_on_cpu;
  return static_cast<unsigned>(
      warpFunction(WarpFunction::kMatchAny, mask, toBits(value), 0, 32, file, line));
}
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* predicate, CUDA_ON_CPU_CALLER) {
  using namespace cuda_on_cpu;
  const unsigned same = static_cast<unsigned>(
      warpFunction(WarpFunction::kMatchAll, mask, toBits(value), 0, 32, file, line));
  *predicate = same != 0;
  return same;
}

#define CUDA_ON_CPU_REDUCE(name, type, function)                            \
  inline type name(unsigned mask, type value, CUDA_ON_CPU_CALLER) {         \
    using namespace cuda_on_cpu;                                            \
    return shuffle(WarpFunction::function, mask, value, 0, 32, file, line); \
  }
CUDA_ON_CPU_REDUCE(__reduce_add_sync, unsigned, kAdd)
CUDA_ON_CPU_REDUCE(__reduce_add_sync, int, kAdd)
CUDA_ON_CPU_REDUCE(__reduce_min_sync, unsigned, kMinUnsigned)
CUDA_ON_CPU_REDUCE(__reduce_min_sync, int, kMinSigned)
CUDA_ON_CPU_REDUCE(__reduce_max_sync, unsigned, kMaxUnsigned)
CUDA_ON_CPU_REDUCE(__reduce_max_sync, int, kMaxSigned)
CUDA_ON_CPU_REDUCE(__reduce_and_sync, unsigned, kAnd)
CUDA_ON_CPU_REDUCE(__reduce_or_sync, unsigned, kOr)
CUDA_ON_CPU_REDUCE(__reduce_xor_sync, unsigned, kXor)
#undef CUDA_ON_CPU_REDUCE
