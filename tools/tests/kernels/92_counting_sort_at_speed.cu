// SPDX-License-Identifier: MIT
//
// Lesson 92's kernels. sortChunks is tested through countingSort, which chooses its shape. The
// case's grid is the number of chunks.
#include "harness.h"

#define main lesson_main
#include LESSON_FILE
#undef main

using namespace kernel_test;

using Keys = std::vector<unsigned char>;
using Places = std::vector<unsigned int>;

Places stableOrder(const Keys& keys) {
  Places order(keys.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](unsigned a, unsigned b) { return keys[a] < keys[b]; });
  return order;
}

void testCount(const Case& c) {
  const char* const name = "countChunks";
  const Keys& keys = makeValues<unsigned char>(c, kBins);
  const unsigned chunk_keys = (c.size / c.grid / 16 + 1) * 16;
  const Guarded<unsigned char> in(keys, c.offset);
  const Guarded<unsigned int> counts(c.grid * kBins, c.offset, 0xff);
  countChunks<<<c.grid, c.block>>>(in.data(), c.size, chunk_keys, counts.data());
  mustRun(name);
  std::vector<unsigned int> want(c.grid * kBins);
  for (int i = 0; i < c.size; ++i) ++want[i / chunk_keys * kBins + keys[i]];
  expectEqual(c, name, counts.get(c, name), want);
  in.expectUnchanged(c, name, keys);
}

void testSort(const Case& c) {
  const char* const name = "countingSort";
  const Keys& keys = makeValues<unsigned char>(c, kBins);
  const Guarded<unsigned char> in(keys, c.offset);
  const Guarded<unsigned char> sorted(keys.size(), (c.offset * 7 + c.grid) % 16, 0xff);
  const Guarded<unsigned int> index(keys.size(), c.offset, 0xff);
  const Guarded<unsigned int> counts(c.grid * kBins, c.offset, 0xff);
  countingSort(in.data(), static_cast<unsigned>(c.size), sorted.data(), index.data(), c.grid,
               counts.data());
  mustRun(name);
  const Places want = stableOrder(keys);
  expectEqual(c, name, index.get(c, name), want);
  Keys want_keys;
  for (unsigned place : want) want_keys.push_back(keys[place]);
  expectEqual(c, name, sorted.get(c, name), want_keys);
  in.expectUnchanged(c, name, keys);
  counts.get(c, name);
}

// Sizes at which every block has one whole tile, a key less, and a second tile. `c` chooses among
// them with sizes of 15, 16 and 17. Of the cases with many chunks a few are enough.
void testTileEdges(const Case& c) {
  if (c.size < 15 || (c.grid > 3 && (c.size < 17 || c.offset % 5 > 0))) return;
  Case edge = c;
  edge.grid = std::min(c.grid, 20);
  edge.size = edge.grid * kTile + c.size - 16;
  testSort(edge);
}

// The judge: no wrong place in a right order, and each of the planted faults counted.
void testJudge(const Case& c) {
  const char* const name = "countWrong";
  const Keys& keys = makeValues<unsigned char>(c, kBins);
  Places index = stableOrder(keys);
  Keys sorted;
  for (unsigned place : index) sorted.push_back(keys[place]);
  unsigned int least = 0;
  if (c.size > 2 && c.grid == 2) std::swap(index[0], index[1]), least = 1;
  if (c.size > 2 && c.grid == 3) index[c.size - 1] = ~0u, least = 1;
  const Guarded<unsigned char> d_keys(keys, c.offset), d_sorted(sorted, c.offset);
  const Guarded<unsigned int> d_index(index, c.offset);
  const Guarded<unsigned int> d_wrong(1, c.offset, 0);
  countWrong<<<c.grid, c.block>>>(d_keys.data(), d_sorted.data(), d_index.data(), c.size,
                                  d_wrong.data());
  mustRun(name);
  const unsigned int wrong = d_wrong.get(c, name)[0];
  expect(least == 0 ? wrong == 0 : wrong >= least && wrong <= 2, c, name,
         "found " + std::to_string(wrong) + " wrong places");
}

void testInputs(const Case& c) {
  const char* const name = "makeKeys";
  const int input = c.offset % kInputs;
  const Guarded<unsigned char> d_keys(c.size, c.offset, 0x11);
  const Guarded<unsigned int> d_position(c.size, c.offset, 0xff);
  makeKeys<<<c.grid, c.block>>>(d_keys.data(), d_position.data(), c.size, input);
  mustRun(name);
  Places places(c.size);
  std::iota(places.begin(), places.end(), 0u);
  expectEqual(c, name, d_position.get(c, name), places);
  const Keys keys = d_keys.get(c, name);
  const bool ascends = std::is_sorted(keys.begin(), keys.end());
  const bool descends = std::is_sorted(keys.rbegin(), keys.rend());
  const std::set<unsigned char> kinds(keys.begin(), keys.end());
  bool right = true;
  if (input == sorted) right = ascends;
  if (input == reversed) right = descends;
  if (input == one_byte) right = kinds.size() <= 1;
  if (input == two_values || input == rare_value) right = kinds.size() <= 2;
  if (input == uniform && c.size > 65536) right = kinds.size() == kBins;
  expect(right, c, name, "not the input that was asked for");
}

int main(int argc, char** argv) {
  return runTests(argc, argv,
                  {{"countChunks", testCount},
                   {"countChunks, sortChunks", testSort, 1 << 30, 4097, false},
                   {"sortChunks at the edges of tiles", testTileEdges, 17, 17, false},
                   {"countWrong", testJudge},
                   {"makeKeys", testInputs}});
}
