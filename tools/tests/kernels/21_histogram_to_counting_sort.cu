// SPDX-License-Identifier: MIT
//
// Lesson 21's kernels and simulations.
#include "harness.h"

#define main lesson_main
#include LESSON_FILE
#undef main

using namespace kernel_test;

std::vector<int> startsOf(const std::vector<int>& counts) {
  std::vector<int> starts(counts.size(), 0);
  for (std::size_t b = 1; b < counts.size(); ++b) starts[b] = starts[b - 1] + counts[b - 1];
  return starts;
}

void testHistogram(const Case& c) {
  const char* const name = "histogram_kernel";
  const std::vector<int>& values = makeValues<int>(c, NUM_BUCKETS);
  const Guarded<int> data(values, c.offset);
  const Guarded<int> hist(NUM_BUCKETS, c.offset, 0);
  std::vector<int> want = countValues<int, int>(values, NUM_BUCKETS);
  for (int& count : want) count *= 2;
  for (int launch = 0; launch < 2; ++launch) {
    histogram_kernel<<<c.grid, c.block>>>(data.data(), hist.data(), c.size);
    mustRun(name);
  }
  expectEqual(c, name, hist.get(c, name), want);
  data.expectUnchanged(c, name, values);
}

// The scan is launched with one block of NUM_BUCKETS threads and no other; the counts vary.
void testScan(const Case& c) {
  const char* const name = "exclusive_scan_offsets";
  std::vector<int> counts = countValues<int, int>(makeValues<int>(c, NUM_BUCKETS), NUM_BUCKETS);
  for (int b = 0; b < NUM_BUCKETS; ++b) counts[b] += b * c.offset;
  const Guarded<int> hist(counts, c.offset);
  const Guarded<int> offsets(NUM_BUCKETS, c.offset, 0xff);
  exclusive_scan_offsets<<<1, NUM_BUCKETS>>>(hist.data(), offsets.data());
  mustRun(name);
  expectEqual(c, name, offsets.get(c, name), startsOf(counts));
  hist.expectUnchanged(c, name, counts);
  expectEqual(c, "simulate_exclusive_scan", simulate_exclusive_scan(counts), startsOf(counts));
}

// Sorted by key, every element once and beside its own key. No order among equal keys is promised.
void expectSorted(const Case& c, const char* name, const std::vector<int>& keys,
                  const std::vector<int>& out, const std::vector<int>& origin, bool stable) {
  std::vector<int> sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  expectEqual(c, name, out, sorted);
  std::vector<bool> seen(keys.size(), false);
  for (std::size_t slot = 0; slot < keys.size(); ++slot) {
    const int from = origin[slot];
    const bool valid = from >= 0 && from < c.size && !seen[from] && keys[from] == out[slot];
    if (!expect(valid, c, name, "slot " + std::to_string(slot) + " has a wrong origin")) return;
    seen[from] = true;
    const bool in_order = slot == 0 || out[slot - 1] != out[slot] || origin[slot - 1] < from;
    if (!expect(in_order || !stable, c, name, "not stable")) return;
  }
}

void testScatter(const Case& c) {
  const char* const name = "scatter_counting_sort";
  const std::vector<int>& keys = makeValues<int>(c, NUM_BUCKETS);
  const std::vector<int> counts = countValues<int, int>(keys, NUM_BUCKETS);
  const Guarded<int> data(keys, c.offset);
  const Guarded<int> cursor(startsOf(counts), c.offset);
  const Guarded<int> out(c.size, c.offset, 0xff);
  const Guarded<int> origin(c.size, c.offset, 0xff);
  scatter_counting_sort<<<c.grid, c.block>>>(data.data(), cursor.data(), out.data(), origin.data(),
                                             c.size);
  mustRun(name);
  expectSorted(c, name, keys, out.get(c, name), origin.get(c, name), false);
  std::vector<int> ends = startsOf(counts);
  for (int b = 0; b < NUM_BUCKETS; ++b) ends[b] += counts[b];
  expectEqual(c, "the cursors after the scatter", cursor.get(c, name), ends);
  data.expectUnchanged(c, name, keys);
}

void testHostSide(const Case& c) {
  const std::vector<int>& keys = makeValues<int>(c, NUM_BUCKETS);
  const std::vector<int> counts = countValues<int, int>(keys, NUM_BUCKETS);
  expectEqual(c, "simulate_histogram", simulate_histogram(keys), counts);
  const SortedPairs simulated = simulate_scatter(keys, startsOf(counts));
  expectSorted(c, "simulate_scatter", keys, simulated.values, simulated.original_indices, true);
  const CountsAndOffsets device = count_and_scan_on_device(keys, c.grid, c.block);
  expectEqual(c, "count_and_scan_on_device", device.counts, counts);
  expectEqual(c, "count_and_scan_on_device, offsets", device.offsets, startsOf(counts));
  const SortedPairs sorted = scatter_on_device(keys, startsOf(counts), c.grid, c.block);
  expectSorted(c, "scatter_on_device", keys, sorted.values, sorted.original_indices, false);
}

// The lesson's checks must accept what is right and find what is planted.
void testChecks(const Case& c) {
  const std::vector<int>& keys = makeValues<int>(c, NUM_BUCKETS);
  const std::vector<int> counts = countValues<int, int>(keys, NUM_BUCKETS);
  const std::vector<int> starts = startsOf(counts);
  const SortedPairs right = simulate_scatter(keys, starts);
  const auto check = [&](bool judged, bool wanted, const char* name) {
    expect(judged == wanted, c, name, wanted ? "rejects what is right" : "accepts what is wrong");
  };
  check(ranges_are_exact(keys, counts, starts, right.values), true, "ranges_are_exact");
  check(is_permutation_of_input(keys, right), true, "is_permutation_of_input");
  check(device_scatter_is_right(keys, right, right), true, "device_scatter_is_right");
  check(same_entries("planted", "bucket", counts, counts), true, "same_entries");
  std::vector<int> wrong = counts;
  ++wrong[3];
  check(ranges_are_exact(keys, wrong, starts, right.values), false, "ranges_are_exact, counts");
  check(ranges_are_exact(keys, counts, wrong, right.values), false, "ranges_are_exact, offsets");
  check(same_entries("planted", "bucket", wrong, counts), false, "same_entries");
  SortedPairs twice = right;
  twice.original_indices[0] = twice.original_indices[1];
  check(is_permutation_of_input(keys, twice), false, "is_permutation_of_input, twice");
  check(device_scatter_is_right(keys, twice, right), false, "device_scatter_is_right, twice");
  SortedPairs other = right;
  other.values[0] = (other.values[0] + 1) % NUM_BUCKETS;
  check(ranges_are_exact(keys, counts, starts, other.values), false, "ranges_are_exact, values");
  check(is_permutation_of_input(keys, other), false, "is_permutation_of_input, values");
  check(device_scatter_is_right(keys, other, right), false, "device_scatter_is_right, values");
  SortedPairs swapped = right;
  std::swap(swapped.original_indices[0], swapped.original_indices[1]);
  const bool equal_keys = right.values[0] == right.values[1];
  check(count_inversions(right) == 0, true, "count_inversions");
  int neighbors = 0;
  for (int count : counts) neighbors += std::max(0, count - 1);
  check(count_equal_neighbors(right) == neighbors, true, "count_equal_neighbors");
  if (equal_keys) check(count_inversions(swapped) > 0, true, "count_inversions, swapped");
}

int main(int argc, char** argv) {
  return runTests(argc, argv,
                  {{"histogram_kernel", testHistogram},
                   {"exclusive_scan_offsets", testScan},
                   {"scatter_counting_sort", testScatter},
                   {"host side", testHostSide, 65537},
                   {"the lesson's checks", [](const Case& c) {
                      if (c.size == 255 || c.size == 3991) testChecks(c);
                    }}});
}
