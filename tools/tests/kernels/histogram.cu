// SPDX-License-Identifier: MIT
//
// The kernels of day 29's histogram.cu.
#include "harness.h"

#define main lesson_main
#include LESSON_FILE
#undef main

using namespace kernel_test;

using ByteKernel = void (*)(const unsigned char*, std::size_t, unsigned int*);

void testCounting(const char* name, ByteKernel kernel, const Case& c) {
  const Bytes& bytes = makeValues<unsigned char>(c, kBins);
  const Guarded<unsigned char> input(bytes, c.offset);
  const Guarded<unsigned int> bins(kBins, c.offset, 0);
  Bins want = countValues<unsigned char, unsigned int>(bytes, kBins);
  for (unsigned int& count : want) count *= 2;
  for (int launch = 0; launch < 2; ++launch) {
    kernel<<<c.grid, c.block>>>(input.data(), c.size, bins.data());
    mustRun(name);
  }
  expectEqual(c, name, bins.get(c, name), want);
  input.expectUnchanged(c, name, bytes);
}

// Partials start from garbage: a thread without bytes has to write a 0 all the same.
void testSum(const Case& c) {
  const char* const name = "sumBytes";
  const Bytes& bytes = makeValues<unsigned char>(c, kBins);
  const Guarded<unsigned char> input(bytes, c.offset);
  const Guarded<unsigned int> partials(c.grid * c.block, c.offset, 0xff);
  sumBytes<<<c.grid, c.block>>>(input.data(), c.size, partials.data());
  mustRun(name);
  Bins want(c.grid * c.block, 0);
  for (int i = 0; i < c.size; ++i) want[i % want.size()] += bytes[i];
  expectEqual(c, name, partials.get(c, name), want);
  input.expectUnchanged(c, name, bytes);
}

// The lesson's own references.
void testReference(const Case& c) {
  const Bytes& bytes = makeValues<unsigned char>(c, kBins);
  const Bins want = countValues<unsigned char, unsigned int>(bytes, kBins);
  expectEqual(c, "referenceHistogram", referenceHistogram(bytes), want);
  unsigned long long sum = 0;
  for (int b = 0; b < kBins; ++b) sum += 1ULL * b * want[b];
  expect(referenceSum(bytes) == sum, c, "referenceSum", "wrong");
  const Skew skew = inputSkew(want, bytes.size());
  const bool full = c.values == kEachOnce && c.size >= kBins;
  expect(!full || skew.bins_used == kBins, c, "inputSkew", "bins used");
  expect(c.values != kAllEqual || c.size == 0 || skew.max_bin_percent == 100.0, c, "inputSkew",
         "the share of the only bin");
}

// The lesson's checks must find a wrong bin, a lost byte and a wrong sum.
void testChecks(const Case& c) {
  const Bytes& bytes = makeValues<unsigned char>(c, kBins);
  const Bins right = countValues<unsigned char, unsigned int>(bytes, kBins);
  Bins wrong = right;
  wrong[c.offset] += 1;
  const Guarded<unsigned int> bins(right, c.offset);
  DeviceData data;
  data.size = c.size;
  data.d_bins = bins.data();
  const auto judge = [&](const Bins& reference) {
    return binsAreRight("planted", "planted", data, reference, 1);
  };
  expect(judge(right), c, "binsAreRight", "rejects what is right");
  expect(!judge(wrong), c, "binsAreRight", "accepts a wrong bin");
  data.size = c.size + 1;
  expect(!judge(right), c, "binsAreRight", "accepts a reference that has lost a byte");
  const Guarded<unsigned int> partials({7u, 5u}, c.offset);
  data.d_partials = partials.data();
  data.partials = 2;
  expect(sumIsRight(data, 12), c, "sumIsRight", "rejects what is right");
  expect(!sumIsRight(data, 13), c, "sumIsRight", "accepts a wrong sum");
}

int main(int argc, char** argv) {
  return runTests(argc, argv,
                  {{"sumBytes", testSum},
                   {"histogramGlobal",
                    [](const Case& c) { testCounting("histogramGlobal", histogramGlobal, c); }},
                   {"histogramPrivate",
                    [](const Case& c) { testCounting("histogramPrivate", histogramPrivate, c); }},
                   {"references", testReference},
                   {"the lesson's checks", testChecks, 1}});
}
