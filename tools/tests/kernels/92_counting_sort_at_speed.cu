// SPDX-License-Identifier: MIT
//
// Lesson 92's kernels. The three of the sort have fixed shapes and are tested through CountingSort,
// with tiles of both sizes; the case's grid is the number of chunks.
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

template <int kRows>
void testSort(const Case& c) {
  const char* const name = "CountingSort";
  cudaDeviceProp device;
  must(cudaGetDeviceProperties(&device, 0), "properties");
  device.multiProcessorCount = c.grid;
  CountingSort<kRows> sort(device);
  const Keys& keys = makeValues<unsigned char>(c, kBins);
  const Guarded<unsigned char> in(keys, c.offset);
  const Guarded<unsigned char> sorted(keys.size(), (c.offset * 7 + c.grid) % 16, 0xff);
  const Guarded<unsigned int> index(keys.size(), c.offset, 0xff);
  sort(in.data(), static_cast<unsigned>(c.size), sorted.data(), index.data());
  mustRun(name);
  const Places want = stableOrder(keys);
  expectEqual(c, name, index.get(c, name), want);
  Keys want_keys;
  for (unsigned place : want) want_keys.push_back(keys[place]);
  expectEqual(c, name, sorted.get(c, name), want_keys);
  in.expectUnchanged(c, name, keys);
}

// Sizes at which every block has one whole tile, a key less, and a second tile. `c` chooses among
// them with sizes of 15, 16 and 17; big tiles are tried with one block only, for the sake of time.
void testTileEdges(const Case& c) {
  if (c.size < 15 || c.grid > 3) return;
  Case edge = c;
  edge.size = c.grid * static_cast<int>(CountingSort<kSmallRows>::kTile) + c.size - 16;
  testSort<kSmallRows>(edge);
  if (c.grid > 1) return;
  edge.size = static_cast<int>(CountingSort<kBigRows>::kTile) + c.size - 16;
  testSort<kBigRows>(edge);
}

void testBothSorts(const Case& c) {
  testSort<kSmallRows>(c);
  testSort<kBigRows>(c);
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
  makeKeys<<<c.grid, c.block>>>(d_keys.data(), c.size, input);
  mustRun(name);
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
                  {{"countChunks, scanChunks, sortChunks", testBothSorts, 1 << 30, 4097, false},
                   {"sortChunks at the edges of tiles", testTileEdges, 17, 17, false},
                   {"countWrong", testJudge},
                   {"makeKeys", testInputs}});
}
