// SPDX-License-Identifier: MIT
//
// Lesson 91's kernels.
#include "harness.h"

#define main lesson_main
#include LESSON_FILE
#undef main

using namespace kernel_test;

// 16-bit keys whose two digits both vary; the pass sorts by the one that `shift` selects.
std::vector<int> keysOf(const Case& c) {
  std::vector<int> keys = makeValues<int>(c, NUM_BUCKETS);
  for (int i = 0; i < c.size; ++i) keys[i] = keys[i] * 256 + (keys[i] * 3 + c.offset) % 256;
  return keys;
}

int shiftOf(const Case& c) {
  return c.offset % 2 == 0 ? 0 : DIGIT_BITS;
}

std::vector<int> digitsOf(const std::vector<int>& keys, int shift) {
  std::vector<int> digits;
  for (int key : keys) digits.push_back(key / (shift == 0 ? 1 : 256) % 256);
  return digits;
}

std::vector<int> startsOf(const std::vector<int>& counts) {
  std::vector<int> starts(counts.size(), 0);
  for (std::size_t b = 1; b < counts.size(); ++b) starts[b] = starts[b - 1] + counts[b - 1];
  return starts;
}

int gridCovering(const Case& c) {
  return (c.size + c.block - 1) / c.block + c.grid;
}

void testCount(const Case& c) {
  const char* const name = "count_digits";
  const std::vector<int> keys = keysOf(c);
  const Guarded<int> data(keys, c.offset);
  const Guarded<int> hist(NUM_BUCKETS, c.offset, 0);
  count_digits<<<gridCovering(c), c.block>>>(data.data(), c.size, shiftOf(c), hist.data());
  mustRun(name);
  expectEqual(c, name, hist.get(c, name),
              countValues<int, int>(digitsOf(keys, shiftOf(c)), NUM_BUCKETS));
  data.expectUnchanged(c, name, keys);
}

// Row b, column k: how many keys of digit b are in block k's piece.
std::vector<int> tableOf(const Case& c, const std::vector<int>& digits) {
  std::vector<int> table(NUM_BUCKETS * c.grid, 0);
  const int tiles = (c.size + c.block - 1) / c.block;
  const int tiles_per_block = std::max(1, (tiles + c.grid - 1) / c.grid);
  for (int i = 0; i < c.size; ++i) ++table[digits[i] * c.grid + i / c.block / tiles_per_block];
  return table;
}

void testCountPerBlock(const Case& c) {
  const char* const name = "count_digits_per_block";
  const std::vector<int> keys = keysOf(c);
  const Guarded<int> data(keys, c.offset);
  const Guarded<int> table(NUM_BUCKETS * c.grid, c.offset, 0xff);
  count_digits_per_block<<<c.grid, c.block>>>(data.data(), c.size, shiftOf(c), table.data());
  mustRun(name);
  expectEqual(c, name, table.get(c, name), tableOf(c, digitsOf(keys, shiftOf(c))));
}

// The scan of n counts, in place; always one block, of any size.
void testScan(const Case& c) {
  const char* const name = "scan_exclusive";
  const std::vector<int>& counts = makeValues<int>(c, NUM_BUCKETS);
  const Guarded<int> table(counts, c.offset);
  scan_exclusive<<<1, c.block>>>(table.data(), c.size);
  mustRun(name);
  expectEqual(c, name, table.get(c, name), startsOf(counts));
}

struct GuardedPairs {
  Guarded<int> key, index;
  DevicePairs pointers() const { return {key.data(), index.data()}; }
};

void testScatter(const char* name, bool stable, const Case& c) {
  const std::vector<int> keys = keysOf(c);
  const std::vector<int> digits = digitsOf(keys, shiftOf(c));
  std::vector<int> places(c.size);
  std::iota(places.begin(), places.end(), 0);
  const GuardedPairs in{{keys, c.offset}, {places, c.offset}};
  const GuardedPairs out{{keys.size(), c.offset, 0xff}, {keys.size(), c.offset, 0xff}};
  if (stable) {
    const Guarded<int> table(startsOf(tableOf(c, digits)), c.offset);
    scatter_stable<<<c.grid, c.block>>>(in.pointers(), c.size, shiftOf(c), table.data(),
                                        out.pointers());
    mustRun(name);
    table.get(c, name);
  } else {
    const Guarded<int> cursor(startsOf(countValues<int, int>(digits, NUM_BUCKETS)), c.offset);
    scatter_by_atomic<<<gridCovering(c), c.block>>>(in.pointers(), c.size, shiftOf(c),
                                                    cursor.data(), out.pointers());
    mustRun(name);
    cursor.get(c, name);
  }
  std::vector<int> want = places;
  std::stable_sort(want.begin(), want.end(), [&](int a, int b) { return digits[a] < digits[b]; });
  std::vector<int> got = out.index.get(c, name);
  const std::vector<int> got_keys = out.key.get(c, name);
  for (int slot = 0; slot < c.size; ++slot) {
    const bool own = got[slot] >= 0 && got[slot] < c.size && keys[got[slot]] == got_keys[slot] &&
                     digits[got[slot]] == digits[want[slot]];
    if (!expect(own, c, name, "slot " + std::to_string(slot) + " holds a wrong pair")) return;
  }
  if (!stable) {
    std::sort(got.begin(), got.end());
    std::sort(want.begin(), want.end());
  }
  expectEqual(c, name, got, want);
}

// count_faults must find what was planted, and nothing where nothing was.
void testJudge(const Case& c) {
  const char* const name = "count_faults";
  std::vector<int> keys = makeValues<int>(c, NUM_BUCKETS);
  std::sort(keys.begin(), keys.end());
  std::vector<int> places(c.size);
  std::iota(places.begin(), places.end(), 0);
  std::vector<int> spoiled_keys = keys, spoiled_places = places;
  if (c.values == kRandom && c.size > 2) std::swap(spoiled_keys[0], spoiled_keys[c.size - 1]);
  if (c.values == kAllEqual && c.size > 2) std::swap(spoiled_places[0], spoiled_places[1]);
  Faults want{0, 0, 0};
  for (int i = 0; i < c.size; ++i) {
    want.wrong += spoiled_keys[i] != keys[i] || spoiled_places[i] != places[i];
    if (i + 1 == c.size) break;
    want.descents += spoiled_keys[i] > spoiled_keys[i + 1];
    want.inversions +=
        spoiled_keys[i] == spoiled_keys[i + 1] && spoiled_places[i] > spoiled_places[i + 1];
  }
  const GuardedPairs out{{spoiled_keys, c.offset}, {spoiled_places, c.offset}};
  const GuardedPairs reference{{keys, c.offset}, {places, c.offset}};
  const Guarded<int> faults(3, c.offset, 0);
  count_faults<<<gridCovering(c), c.block>>>(out.pointers(), reference.pointers(), c.size, 0, 255,
                                             reinterpret_cast<Faults*>(faults.data()));
  mustRun(name);
  expectEqual(c, name, faults.get(c, name), {want.descents, want.inversions, want.wrong});
}

int main(int argc, char** argv) {
  return runTests(
      argc, argv,
      {{"count_digits", testCount},
       {"count_digits_per_block", testCountPerBlock},
       {"scan_exclusive", testScan, 65537, 4097},
       {"scatter_by_atomic", [](const Case& c) { testScatter("scatter_by_atomic", false, c); },
        1 << 30, 65537},
       {"scatter_stable", [](const Case& c) { testScatter("scatter_stable", true, c); }, 1 << 30,
        65537},
       {"count_faults", testJudge}});
}
