// SPDX-License-Identifier: MIT
//
// Lesson 20's kernels and simulations.
#include "harness.h"

#define main lesson_main
#include LESSON_FILE
#undef main

using namespace kernel_test;

using CountingKernel = void (*)(const int*, int*, int);

// Two launches without a reset in between: the second must add to what the first has left.
void testCounting(const char* name, CountingKernel kernel, const Case& c) {
  const std::vector<int>& values = makeValues<int>(c, NUM_BUCKETS);
  const Guarded<int> data(values, c.offset);
  const Guarded<int> hist(NUM_BUCKETS, c.offset, 0);
  std::vector<int> want = countValues<int, int>(values, NUM_BUCKETS);
  for (int& count : want) count *= 2;
  for (int launch = 0; launch < 2; ++launch) {
    kernel<<<c.grid, c.block>>>(data.data(), hist.data(), c.size);
    mustRun(name);
  }
  expectEqual(c, name, hist.get(c, name), want);
  data.expectUnchanged(c, name, values);
}

// The simulations, and the function that launches both kernels for the lesson.
void testHostSide(const Case& c) {
  const std::vector<int>& values = makeValues<int>(c, NUM_BUCKETS);
  const std::vector<int> want = countValues<int, int>(values, NUM_BUCKETS);
  const Simulation naive = simulate_naive_global(values, c.grid, c.block);
  const Simulation privatized = simulate_privatized(values, c.grid, c.block);
  expectEqual(c, "simulate_naive_global", naive.hist, want);
  expectEqual(c, "simulate_privatized", privatized.hist, want);
  expect(naive.global_atomics == c.size, c, "simulate_naive_global", "one atomic an element");
  expect(privatized.global_atomics == 1LL * c.grid * NUM_BUCKETS, c, "simulate_privatized",
         "blocks x buckets atomics");
  const DeviceHistograms device = run_on_device(values, c.grid, c.block);
  expectEqual(c, "run_on_device, naive", device.naive, want);
  expectEqual(c, "run_on_device, privatized", device.privatized, want);
}

// A check that compares with itself would call anything right.
void testChecks(const Case& c) {
  const std::vector<int> right(NUM_BUCKETS, c.size);
  std::vector<int> wrong = right;
  wrong[c.offset % NUM_BUCKETS] += 1;
  expect(same_histogram("planted", right, right), c, "same_histogram", "rejects what is right");
  expect(!same_histogram("planted", wrong, right), c, "same_histogram", "accepts what is wrong");
}

int main(int argc, char** argv) {
  return runTests(
      argc, argv,
      {{"histogram_naive_global",
        [](const Case& c) { testCounting("histogram_naive_global", histogram_naive_global, c); }},
       {"histogram_privatized",
        [](const Case& c) { testCounting("histogram_privatized", histogram_privatized, c); }},
       {"host side", testHostSide, 65537},
       {"the lesson's check", testChecks, 1}});
}
