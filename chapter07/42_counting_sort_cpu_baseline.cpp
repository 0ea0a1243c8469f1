// SPDX-License-Identifier: MIT
//
// 7.3  Sequential counting sort, the baseline
//
// Counting sort compares no two keys. It counts the keys of each bucket, turns the counts into the
// position where each bucket starts, and then hands every key the next free slot of its bucket.
// The trap: a count is not a position. On these keys the counts are 2 2 1 3 and the offsets are
// 0 2 4 5; with the counts as positions, buckets 0 and 1 would both start at slot 2.
//
// Build: g++ -std=c++17 -Wall -Wextra -O2 42_counting_sort_cpu_baseline.cpp -o counting_sort_cpu_baseline
// Run:   ./counting_sort_cpu_baseline
#include <cstdio>
#include <vector>

constexpr int NUM_BUCKETS = 4;

// Eight keys are few enough to sort by hand, and that is where the expected answer comes from.
const std::vector<int> KEYS = {3, 1, 3, 0, 2, 1, 3, 0};
const std::vector<int> EXPECTED = {0, 0, 1, 1, 2, 3, 3, 3};

// Every key must lie in [0, num_buckets).
std::vector<int> counting_sort_cpu(const std::vector<int>& keys, int num_buckets) {
  // Loop 1, the histogram: how many keys does each bucket hold?
  std::vector<int> counts(num_buckets, 0);
  for (int key : keys) counts[key]++;

  // Loop 2, the exclusive scan: bucket b starts where all smaller buckets together end. The running
  // total is stored before the bucket's own count is added, which is what "exclusive" means.
  std::vector<int> cursor(num_buckets, 0);
  int running_total = 0;
  for (int b = 0; b < num_buckets; ++b) {
    cursor[b] = running_total;
    running_total += counts[b];
  }

  // Loop 3, the scatter: a key takes the slot its bucket's cursor points to, and the cursor moves
  // on. Equal keys take their slots in input order, so this sequential sort is stable.
  std::vector<int> sorted(keys.size());
  for (int key : keys) sorted[cursor[key]++] = key;
  return sorted;
}

void print_keys(const std::vector<int>& keys) {
  for (int key : keys) std::printf("%d ", key);
}

int main() {
  const std::vector<int> sorted = counting_sort_cpu(KEYS, NUM_BUCKETS);

  std::printf("=== Section 7.3 CPU baseline: sequential counting sort ===\n\n");
  std::printf("keys: ");
  print_keys(KEYS);
  std::printf(" (N=%zu, NUM_BUCKETS=%d)\n\n", KEYS.size(), NUM_BUCKETS);
  std::printf("sorted output: ");
  print_keys(sorted);
  std::printf("\n\nexpected:");
  for (int key : EXPECTED) std::printf(" %d", key);
  std::printf("\n\n");
  std::printf("histogram, running-total offsets, cursor-based scatter -- three ordinary\n");
  std::printf("loops, no coordination needed with exactly one thread.\n\n");

  const bool correct = sorted == EXPECTED;
  std::printf("self-check: sequential counting sort matches expected output: %s\n",
              correct ? "confirmed" : "MISMATCH");
  return correct ? 0 : 1;
}
