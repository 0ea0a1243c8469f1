// SPDX-License-Identifier: MIT
//
// The kernels of day 29's histogram_at_the_floor.cu, through the functions that launch them: their
// block size is fixed, and the case's grid stands for the number of multiprocessors.
#include "harness.h"

#define main lesson_main
#include LESSON_FILE
#undef main

using namespace kernel_test;

template <class Count>
void testCounting(const char* name, Count count, const Case& c) {
  const Bytes& bytes = makeValues<unsigned char>(c, kBins);
  const Bins want = countValues<unsigned char, unsigned int>(bytes, kBins);
  const Guarded<unsigned char> input(bytes, c.offset);
  // Of the two tables the first call counts into [1], which it expects to be zero.
  const Guarded<unsigned int> first(kBins, c.offset, 0xff), second(kBins, c.offset, 0);
  const Guarded<unsigned int> output(kBins, c.offset, 0xff);
  Device device;
  device.sms = c.grid;
  device.d_bins[0] = first.data();
  device.d_bins[1] = second.data();
  device.d_output = output.data();
  for (int call = 0; call < 2; ++call) {
    const unsigned int* const d_bins = count(device, input.data(), c.size);
    mustRun(name);
    Bins got(kBins, ~0u);
    must(cudaMemcpy(got.data(), d_bins, kBins * sizeof(unsigned int), cudaMemcpyDeviceToHost),
         "bins");
    expectEqual(c, name, got, want);
  }
  first.get(c, name);
  second.get(c, name);
  output.get(c, name);
  input.expectUnchanged(c, name, bytes);
}

template <class Sum>
void testSum(const char* name, Sum sum, const Case& c) {
  const Bytes& bytes = makeValues<unsigned char>(c, kBins);
  const Guarded<unsigned char> input(bytes, c.offset);
  Device device;
  device.sms = std::min(c.grid, 5);  // Lanes that exchange values are slow on a CPU.
  const Guarded<unsigned int> partials(partialsOf(device), c.offset, 0);
  device.d_partials = partials.data();
  sum(device, input.data(), c.size);
  mustRun(name);
  const Bins got = partials.get(c, name);
  expect(std::accumulate(got.begin(), got.end(), 0ULL) ==
             std::accumulate(bytes.begin(), bytes.end(), 0ULL),
         c, name, "the sum is wrong");
  input.expectUnchanged(c, name, bytes);
}

template <int kCopies>
void testColumns(const Case& c) {
  const std::string name = "histogramVectors, copies: " + std::to_string(kCopies);
  testCounting(name.c_str(), countVectors<kCopies>, c);
}

int main(int argc, char** argv) {
  const int all = 1 << 30;
  return runTests(
      argc, argv,
      {{"sumVectors", [](const Case& c) { testSum("sumVectors", sumWithVectors, c); }, all, all,
        false},
       {"sumTuned", [](const Case& c) { testSum("sumTuned", sumTunedWell, c); }, all, all, false},
       {"sumBytes", [](const Case& c) { testSum("sumBytes", sumWithBytes, c); }, all, all, false},
       {"histogramVectors<1>", testColumns<1>, all, all, false},
       {"histogramVectors<8>", testColumns<8>, all, 65537, false},
       {"histogramVectors<16>", testColumns<16>, all, 65537, false},
       {"histogramVectors<32>", testColumns<32>, all, all, false}});
}
