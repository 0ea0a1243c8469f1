// SPDX-License-Identifier: MIT
//
// 7.1  Sequential histogram, the baseline
//
// A histogram counts how many elements fall into each bucket. With one thread this is one loop and
// one line of work, and it is right without any further thought. Keep that line in mind: it is a
// load, an add and a store, and the next lesson shows what becomes of it when 32 lanes issue these
// three steps together.
//
// Build: g++ -std=c++17 -Wall -Wextra -O2 40_histogram_cpu_baseline.cpp -o histogram_cpu_baseline
// Run:   ./histogram_cpu_baseline
#include <cstdio>
#include <vector>

constexpr int N = 1000;
constexpr int NUM_BUCKETS = 10;

// Dealing the elements out in turn fills all buckets equally, so the right answer is known without
// counting anything. The check below relies on that, and not on a second run of the same loop.
static_assert(N % NUM_BUCKETS == 0, "every bucket must get the same number of elements");
constexpr int EXPECTED_COUNT = N / NUM_BUCKETS;

std::vector<int> make_round_robin_input() {
  std::vector<int> bucket_of(N);
  for (int i = 0; i < N; ++i) bucket_of[i] = i % NUM_BUCKETS;
  return bucket_of;
}

// Every value in bucket_of must lie in [0, num_buckets).
std::vector<int> histogram_cpu(const std::vector<int>& bucket_of, int num_buckets) {
  std::vector<int> hist(num_buckets, 0);
  // One thread finishes the whole load, add and store before it begins the next one. Nothing can
  // come between the three steps, so no increment is ever lost.
  for (int bucket : bucket_of) hist[bucket]++;
  return hist;
}

bool every_bucket_is(const std::vector<int>& hist, int expected) {
  for (int count : hist) {
    if (count != expected) return false;
  }
  return true;
}

int main() {
  const std::vector<int> bucket_of = make_round_robin_input();
  const std::vector<int> hist = histogram_cpu(bucket_of, NUM_BUCKETS);

  std::printf("=== Section 7.1 CPU baseline: sequential histogram ===\n\n");
  std::printf("N = %d elements, round-robin into %d buckets\n\n", N, NUM_BUCKETS);
  std::printf("bucket counts: ");
  for (int count : hist) std::printf("%d ", count);
  std::printf("\n\nexpected: every bucket exactly %d (no race possible, one thread)\n\n",
              EXPECTED_COUNT);

  const bool correct = every_bucket_is(hist, EXPECTED_COUNT);
  std::printf("self-check: sequential histogram matches expected counts: %s\n",
              correct ? "confirmed" : "MISMATCH");
  return correct ? 0 : 1;
}
