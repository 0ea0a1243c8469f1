// SPDX-License-Identifier: MIT
//
// 7.2  Sequential histogram at the size of the privatized one
//
// The same sequential histogram on the input of the next lesson: 2048 elements, 16 buckets.
// Privatization gives every block of threads a copy of the histogram, so that fewer threads queue
// for the same counter. Here there is one thread, and so no queue: the baseline has nothing to gain
// from a private copy. That is worth seeing first, because it shows that privatization answers a
// question of cost and not one of correctness.
//
// Build: g++ -std=c++17 -Wall -Wextra -O2 41_histogram_cpu_baseline_privatized.cpp -o histogram_cpu_baseline_privatized
// Run:   ./histogram_cpu_baseline_privatized
#include <cstdio>
#include <vector>

constexpr int N = 2048;
constexpr int NUM_BUCKETS = 16;

// Dealt out in turn, the elements fill all buckets equally: the right answer needs no counting.
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

  std::printf("=== Section 7.2 CPU baseline: sequential histogram, N=%d ===\n\n", N);
  std::printf("N = %d elements, round-robin into %d buckets\n\n", N, NUM_BUCKETS);
  std::printf("bucket counts: ");
  for (int count : hist) std::printf("%d ", count);
  std::printf("\n\n");
  std::printf("expected: every bucket exactly %d -- no privatization needed, no contention\n",
              EXPECTED_COUNT);
  std::printf("to reduce, when only one thread ever touches hist.\n\n");

  const bool correct = every_bucket_is(hist, EXPECTED_COUNT);
  std::printf("self-check: sequential histogram matches expected counts: %s\n",
              correct ? "confirmed" : "MISMATCH");
  return correct ? 0 : 1;
}
