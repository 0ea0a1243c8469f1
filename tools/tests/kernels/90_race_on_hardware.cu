// SPDX-License-Identifier: MIT
//
// Lesson 90's kernels. They make their own input and take one element a thread, so the grid must
// cover n; the case's grid adds blocks that have nothing to do.
#include "harness.h"

#define main lesson_main
#include LESSON_FILE
#undef main

using namespace kernel_test;

// What a bucket may hold at the end: its elements, and the warps that hold one of them.
struct Bounds {
  std::vector<int> elements, warps;
};

Bounds boundsOf(const Case& c) {
  Bounds bounds{std::vector<int>(NUM_BUCKETS, 0), std::vector<int>(NUM_BUCKETS, 0)};
  std::vector<int> last_warp(NUM_BUCKETS, -1);
  const int warps_per_block = (c.block + 31) / 32;
  for (int i = 0; i < c.size; ++i) {
    const int bucket = i % NUM_BUCKETS;
    const int warp = i / c.block * warps_per_block + i % c.block / 32;
    ++bounds.elements[bucket];
    if (last_warp[bucket] != warp) ++bounds.warps[bucket];
    last_warp[bucket] = warp;
  }
  return bounds;
}

std::vector<int> launch(const char* name, Kernel kernel, const Case& c) {
  const Guarded<int> hist(NUM_BUCKETS, c.offset, 0);
  kernel<<<(c.size + c.block - 1) / c.block + c.grid, c.block>>>(hist.data(), c.size);
  mustRun(name);
  return hist.get(c, name);
}

void expectBetween(const Case& c, const char* name, const std::vector<int>& got,
                   const std::vector<int>& most) {
  for (int b = 0; b < NUM_BUCKETS; ++b) {
    const int least = std::min(1, most[b]);
    expect(got[b] >= least && got[b] <= most[b], c, name,
           "bucket " + std::to_string(b) + ": got " + std::to_string(got[b]) + ", not in " +
               std::to_string(least) + ".." + std::to_string(most[b]));
  }
}

void testPlain(const Case& c) {
  expectBetween(c, "count_plain", launch("count_plain", count_plain, c), boundsOf(c).elements);
}

void testInStep(const Case& c) {
  expectBetween(c, "count_in_step", launch("count_in_step", count_in_step, c), boundsOf(c).warps);
}

void testAtomic(const Case& c) {
  expectEqual(c, "count_atomic", launch("count_atomic", count_atomic, c), boundsOf(c).elements);
}

// The lesson's own formulas against counting.
void testModel(const Case& c) {
  Case warps_only = c;
  warps_only.block = WARP_SIZE;
  const Bounds bounds = boundsOf(warps_only);
  for (int b = 0; b < NUM_BUCKETS; ++b) {
    expect(elements_in_bucket(c.size, b) == bounds.elements[b], c, "elements_in_bucket", "wrong");
    expect(warps_on_bucket(c.size, b) == bounds.warps[b], c, "warps_on_bucket", "wrong");
  }
}

// The lesson's check must accept what is within the bounds and nothing else.
void testChecks(const Case& c) {
  const std::vector<int> bound(NUM_BUCKETS, c.grid + 1);
  std::vector<int> hist = bound;
  const int bucket = c.offset % NUM_BUCKETS;
  expect(within(hist, bound, "planted", c.size), c, "within", "rejects the bound itself");
  hist[bucket] = bound[bucket] + 1;
  expect(!within(hist, bound, "planted", c.size), c, "within", "accepts more than the bound");
  hist[bucket] = 0;
  expect(!within(hist, bound, "planted", c.size), c, "within", "accepts an empty bucket");
}

int main(int argc, char** argv) {
  return runTests(argc, argv,
                  {{"count_plain", testPlain},
                   {"count_in_step", testInStep},
                   {"count_atomic", testAtomic},
                   {"the model", testModel, 65537},
                   {"the lesson's check", testChecks, 1}});
}
