// SPDX-License-Identifier: MIT
//
// What all kernel tests share: cases, inputs, buffers with guard words, and the loop over cases.
// A test includes this file, then the lesson itself with its main renamed. It never holds a copy.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kernel_test {

constexpr int kSizes[] = {0,   1,   15,  16,   17,   31,   32,    33,
                          255, 256, 257, 3991, 4095, 4097, 65537, 1000003};
constexpr int kBlocks[] = {1, 7, 32, 33, 96, 128, 256, 1000, 1024};
constexpr int kGrids[] = {1, 2, 3, 80};
constexpr int kLargestInPairs = 65537;
constexpr int kOffsets = 16;  // elements by which a pointer misses a 16-byte boundary, or more

enum Values { kAllEqual, kEachOnce, kUpperHalf, kRandom, kKindsOfValues };
constexpr const char* kValueNames[] = {"all equal", "each once", "upper half", "random"};

struct Case {
  int size;
  int block;
  int grid;
  int offset;
  Values values;
};

// "pairs": a covering subset. Any two choices, of a size and a block for example, occur together
// in at least one case; allPairsCovered() proves it at the start of each run. Only of the largest
// size there are no more than four cases, for the sake of time. "triples": each size with each
// offset and each block. "full": the whole product. "small":
// the pairs of sizes up to 4097, where every access is watched. "tiny": four cases, for the race
// detector.
inline std::vector<Case> makeCases(const std::string& mode) {
  std::vector<Case> cases;
  const int sizes = static_cast<int>(std::size(kSizes));
  const int blocks = static_cast<int>(std::size(kBlocks));
  const int grids = static_cast<int>(std::size(kGrids));
  if (mode == "tiny") {
    return {{33, 7, 1, 0, kAllEqual},
            {257, 33, 2, 1, kRandom},
            {257, 96, 3, 3, kUpperHalf},
            {257, 128, 1, 5, kEachOnce}};
  }
  if (mode == "full") {
    for (int size : kSizes) {
      for (int values = 0; values < kKindsOfValues; ++values) {
        for (int offset = 0; offset < kOffsets; ++offset) {
          for (int block : kBlocks) {
            for (int grid : kGrids) {
              cases.push_back({size, block, grid, offset, static_cast<Values>(values)});
            }
          }
        }
      }
    }
    return cases;
  }
  const int rotations = mode == "triples" ? blocks : 1;
  for (int i = 0; i < sizes; ++i) {
    if (mode == "small" && kSizes[i] > 4097) continue;
    for (int j = 0; j < kOffsets; ++j) {
      if (mode == "pairs" && kSizes[i] > kLargestInPairs && j % 5 != 0) continue;
      for (int r = 0; r < rotations; ++r) {
        cases.push_back({kSizes[i], kBlocks[(i + j + r) % blocks], kGrids[(i + j / 4 + r) % grids],
                         j, static_cast<Values>((i + 3 * j + r) % kKindsOfValues)});
      }
    }
  }
  return cases;
}

inline bool allPairsCovered(const std::vector<Case>& cases) {
  std::set<std::vector<int>> seen;
  std::set<int> levels[5];
  for (const Case& c : cases) {
    if (c.size > kLargestInPairs) continue;
    const int chosen[] = {c.size, c.block, c.grid, c.offset, c.values};
    for (int a = 0; a < 5; ++a) {
      levels[a].insert(chosen[a]);
      for (int b = a + 1; b < 5; ++b) seen.insert({a, b, chosen[a], chosen[b]});
    }
  }
  std::size_t all = 0;
  for (int a = 0; a < 5; ++a) {
    for (int b = a + 1; b < 5; ++b) all += levels[a].size() * levels[b].size();
  }
  return seen.size() == all && levels[1].size() == std::size(kBlocks) &&
         levels[2].size() == std::size(kGrids) && levels[3].size() == kOffsets &&
         levels[4].size() == kKindsOfValues;
}

// ---- Errors -----------------------------------------------------------------------------------

inline int& failures() {
  static int count = 0;
  return count;
}

inline void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(3);
}

inline void mustRun(const char* kernel) {
  must(cudaGetLastError(), kernel);
  must(cudaDeviceSynchronize(), kernel);
}

// Reports one wrong result; the first ten are printed. Returns whether it was right.
inline bool expect(bool right, const Case& c, const char* kernel, const std::string& what) {
  if (right) return true;
  if (++failures() <= 10) {
    std::fprintf(stderr, "WRONG: %s, n = %d, block %d, grid %d, pointer off by %d, values %s: %s\n",
                 kernel, c.size, c.block, c.grid, c.offset, kValueNames[c.values], what.c_str());
  }
  return false;
}

template <class T>
bool expectEqual(const Case& c, const char* kernel, const std::vector<T>& got,
                 const std::vector<T>& want) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i] == want[i]) continue;
    return expect(false, c, kernel,
                  "entry " + std::to_string(i) + ": got " + std::to_string(got[i]) + ", want " +
                      std::to_string(want[i]));
  }
  return expect(got.size() == want.size(), c, kernel, "the number of entries differs");
}

// ---- Inputs -----------------------------------------------------------------------------------

// Values in [0, buckets), where buckets is a power of two.
template <class T>
const std::vector<T>& makeValues(const Case& c, int buckets) {
  static std::vector<T> made;
  static int of_size = -1, of_buckets = 0, of_values = 0;
  if (of_size == c.size && of_buckets == buckets && of_values == c.values) return made;
  of_size = c.size, of_buckets = buckets, of_values = c.values;
  made.resize(c.size);
  unsigned int state = 2463534242u;
  for (int i = 0; i < c.size; ++i) {
    state = state * 1664525u + 1013904223u;
    const unsigned int random = (state >> 16) % static_cast<unsigned int>(buckets);
    const unsigned int half = static_cast<unsigned int>(buckets) / 2;
    const unsigned int once = (static_cast<unsigned int>(i) * 77u + 5u) % (2 * half);
    const unsigned int all[] = {2 * half - 1, once, half + random % half, random};
    made[i] = static_cast<T>(all[c.values]);
  }
  return made;
}

// The reference of all histograms: one loop, on the host.
template <class T, class Count>
std::vector<Count> countValues(const std::vector<T>& values, int buckets) {
  std::vector<Count> counts(buckets, 0);
  for (T value : values) ++counts[value];
  return counts;
}

// ---- Buffers ----------------------------------------------------------------------------------

inline bool& tight() {
  static bool is_tight = false;  // No guard words: the CPU runtime's --check watches the ends then.
  return is_tight;
}

// `count` elements on the device, `offset` elements behind an aligned address, between guard words.
template <class T>
class Guarded {
 public:
  Guarded(std::size_t count, int offset, unsigned char fill) : Guarded(count, offset) {
    if (count > 0) must(cudaMemset(data(), fill, bytes()), "fill");
  }
  Guarded(const std::vector<T>& values, int offset) : Guarded(values.size(), offset) {
    set(values);
  }
  ~Guarded() { cudaFree(memory_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() const { return reinterpret_cast<T*>(memory_ + before_); }

  void set(const std::vector<T>& values) {
    if (count_ > 0) must(cudaMemcpy(data(), values.data(), bytes(), cudaMemcpyHostToDevice), "up");
  }

  // The elements. Writes round them are reported.
  std::vector<T> get(const Case& c, const char* kernel) const {
    std::vector<unsigned char> all(before_ + bytes() + after_);
    must(cudaMemcpy(all.data(), memory_, all.size(), cudaMemcpyDeviceToHost), "down");
    const auto is_guard = [](unsigned char byte) { return byte == kGuard; };
    expect(std::all_of(all.begin(), all.begin() + before_, is_guard), c, kernel,
           "a write before the begin of a buffer");
    expect(std::all_of(all.end() - after_, all.end(), is_guard), c, kernel,
           "a write behind the end of a buffer");
    std::vector<T> values(count_);
    if (count_ > 0) std::memcpy(values.data(), all.data() + before_, bytes());
    return values;
  }

  void expectUnchanged(const Case& c, const char* kernel, const std::vector<T>& values) const {
    expect(get(c, kernel) == values, c, kernel, "the input was changed");
  }

 private:
  Guarded(std::size_t count, int offset)
      : count_(count), before_((tight() ? 0 : kGuardBytes) + offset * sizeof(T)) {
    after_ = tight() ? (count == 0 && before_ == 0 ? 1 : 0) : kGuardBytes;
    must(cudaMalloc(&memory_, before_ + bytes() + after_), "cudaMalloc");
    must(cudaMemset(memory_, kGuard, before_ + bytes() + after_), "guard words");
  }

  std::size_t bytes() const { return count_ * sizeof(T); }

  // As a byte a value that must not be counted, as an int an index far outside.
  static constexpr unsigned char kGuard = 0xA5;
  static constexpr std::size_t kGuardBytes = 64;
  std::size_t count_, before_, after_ = 0;
  unsigned char* memory_ = nullptr;
};

// ---- The loop ---------------------------------------------------------------------------------

struct Test {
  const char* kernel;
  std::function<void(const Case&)> run;
  int largest = 1 << 30;           // sizes above are left out ...
  int largest_in_pairs = 1 << 30;  // ... and here, in the covering subset
  bool uses_shape = true;          // false: the host code chooses block and grid
};

// Arguments: the mode, then "tight" where wanted, or the name of the only test to run. Status 0:
// all right, 1: wrong results, 3: nothing could be tested.
inline int runTests(int argc, char** argv, const std::vector<Test>& tests) {
  const std::string mode = argc > 1 ? argv[1] : "pairs";
  const std::string only = argc > 2 ? argv[2] : "";
  tight() = only == "tight";
  const std::vector<Case> cases = makeCases(mode);
  if (mode != "tiny" && !allPairsCovered(cases)) {
    std::fprintf(stderr, "the cases do not cover all pairs\n");
    return 3;
  }
  bool any = false;
  for (const Test& test : tests) {
    if (!only.empty() && !tight() && only != test.kernel) continue;
    any = true;
    int done = 0;
    const auto start = std::chrono::steady_clock::now();
    std::set<std::vector<int>> seen;
    for (const Case& c : cases) {
      if (c.size > test.largest || (mode == "pairs" && c.size > test.largest_in_pairs)) continue;
      if (!test.uses_shape && !seen.insert({c.size, c.grid, c.offset, c.values}).second) continue;
      test.run(c);
      ++done;
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    std::printf("%s: %d cases in %.2f s\n", test.kernel, done, taken.count());
  }
  if (!any) {
    std::fprintf(stderr, "there is no test '%s'\n", only.c_str());
    return 3;
  }
  if (failures() > 0) {
    std::fprintf(stderr, "%d wrong results\n", failures());
    return 1;
  }
  std::printf("all right\n");
  return 0;
}

}  // namespace kernel_test
