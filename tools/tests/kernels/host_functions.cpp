// SPDX-License-Identifier: MIT
//
// The functions of the lessons that have no kernels: 40, 19, 41 and 42. Their standard headers come
// first, so that inside the namespaces nothing is left of them to include.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <vector>

#define main lesson_main
namespace lesson_40 {
#include LESSON_40
}
namespace lesson_19 {
#include LESSON_19
}
namespace lesson_41 {
#include LESSON_41
}
namespace lesson_42 {
#include LESSON_42
}
#undef main

int wrong = 0;

void expect(bool right, const char* what, std::size_t n, int buckets) {
  if (right) return;
  ++wrong;
  std::fprintf(stderr, "WRONG: %s, n = %zu, %d buckets\n", what, n, buckets);
}

// What a wave keeps: one increment for each bucket that occurs in it.
std::vector<int> countWaves(const std::vector<int>& values, int buckets) {
  std::vector<int> counts(buckets, 0);
  for (int bucket = 0; bucket < buckets; ++bucket) {
    for (std::size_t start = 0; start < values.size(); start += 32) {
      const auto end = values.begin() + std::min(start + 32, values.size());
      counts[bucket] += std::find(values.begin() + start, end, bucket) != end;
    }
  }
  return counts;
}

void test(const std::vector<int>& values, int buckets) {
  std::vector<int> counts(buckets, 0), sorted = values;
  for (int value : values) ++counts[value];
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = values.size();
  expect(lesson_40::histogram_cpu(values, buckets) == counts, "40: histogram_cpu", n, buckets);
  expect(lesson_41::histogram_cpu(values, buckets) == counts, "41: histogram_cpu", n, buckets);
  expect(lesson_19::simulate_atomic_histogram(values, buckets) == counts, "19: atomic", n, buckets);
  expect(lesson_19::simulate_naive_histogram(values, buckets) == countWaves(values, buckets),
         "19: naive", n, buckets);
  expect(lesson_42::counting_sort_cpu(values, buckets) == sorted, "42: counting_sort_cpu", n,
         buckets);
}

int main() {
  for (int n : {0, 1, 15, 16, 17, 31, 32, 33, 255, 256, 257, 3991, 4095, 4097, 65537}) {
    for (int buckets : {1, 2, 10, 31, 32, 33, 256}) {
      std::vector<int> equal(n, buckets - 1), once(n), random(n);
      unsigned int state = 1;
      for (int i = 0; i < n; ++i) {
        state = state * 1664525u + 1013904223u;
        once[i] = i % buckets;
        random[i] = static_cast<int>((state >> 16) % buckets);
      }
      for (const std::vector<int>& values : {equal, once, random}) test(values, buckets);
    }
  }
  if (wrong == 0) std::puts("all right");
  return wrong == 0 ? 0 : 1;
}
