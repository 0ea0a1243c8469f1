// SPDX-License-Identifier: MIT
//
// A stand-in for CUB's radix sort: the same two calls, sorted serially on the CPU. It lets a lesson
// that compares itself with CUB build and verify; it says nothing about CUB's speed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <type_traits>
#include <vector>

#include "../../cuda_runtime.h"

namespace cub {

struct DeviceRadixSort {
  template <class Key, class Value, class Count>
  static cudaError_t SortPairs(void* temporary, std::size_t& temporary_bytes, const Key* d_keys_in,
                               Key* d_keys_out, const Value* d_values_in, Value* d_values_out,
                               Count count, int begin_bit = 0, int end_bit = sizeof(Key) * 8,
                               cudaStream_t = nullptr) {
    if (temporary == nullptr) {
      temporary_bytes = 1;
      return cudaSuccess;
    }
    const cuda_on_cpu::DeviceAccess access;
    const std::vector<Count> order = sortedOrder(d_keys_in, count, begin_bit, end_bit);
    for (Count i = 0; i < count; ++i) {
      d_keys_out[i] = d_keys_in[order[i]];
      d_values_out[i] = d_values_in[order[i]];
    }
    return cudaSuccess;
  }

  template <class Key, class Count>
  static cudaError_t SortKeys(void* temporary, std::size_t& temporary_bytes, const Key* d_keys_in,
                              Key* d_keys_out, Count count, int begin_bit = 0,
                              int end_bit = sizeof(Key) * 8, cudaStream_t = nullptr) {
    if (temporary == nullptr) {
      temporary_bytes = 1;
      return cudaSuccess;
    }
    const cuda_on_cpu::DeviceAccess access;
    const std::vector<Count> order = sortedOrder(d_keys_in, count, begin_bit, end_bit);
    for (Count i = 0; i < count; ++i) d_keys_out[i] = d_keys_in[order[i]];
    return cudaSuccess;
  }

 private:
  // The positions of the keys, ordered by the bits [begin_bit, end_bit); equal ones stay in order.
  template <class Key, class Count>
  static std::vector<Count> sortedOrder(const Key* keys, Count count, int begin_bit, int end_bit) {
    static_assert(std::is_unsigned_v<Key>, "this stand-in sorts unsigned keys only");
    const int bits = end_bit - begin_bit;
    const unsigned long long mask = bits >= 64 ? ~0ull : (1ull << bits) - 1;
    const auto digit = [=](Count i) {
      return static_cast<unsigned long long>(keys[i]) >> begin_bit & mask;
    };
    std::vector<Count> order(static_cast<std::size_t>(count));
    if (bits > 16) {
      std::iota(order.begin(), order.end(), Count{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](Count a, Count b) { return digit(a) < digit(b); });
      return order;
    }
    // Few different digits: counts, then offsets, then each position to its slot.
    std::vector<std::size_t> next((std::size_t{1} << bits) + 1, 0);
    for (Count i = 0; i < count; ++i) ++next[digit(i) + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    for (Count i = 0; i < count; ++i) order[next[digit(i)]++] = i;
    return order;
  }
};

}  // namespace cub
