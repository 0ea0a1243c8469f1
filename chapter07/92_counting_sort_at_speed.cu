// SPDX-License-Identifier: MIT
//
// 7.6  A stable counting sort at the speed of the machine
//
// Lesson 91 made fast: byte keys in; the keys in order and each one's original index out. At least
// seven bytes move for each element: its key is read twice (count, then place), its index (4) and
// its key (1) are written. What is left to save is instructions. A key's rank costs one atomicAdd,
// whose order nobody promises, so each sorted tile is checked while it is written and put right if
// the hardware chose another order: fast when the order is kind, correct whatever it is. The last
// table shows CUB beside it; CUB picks its tuning by -arch, so name your own card's there.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90 92_counting_sort_at_speed.cu -o counting_sort_at_speed
// Run:   ./counting_sort_at_speed
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cub/device/device_radix_sort.cuh>
#include <vector>

#ifndef SORT_KEYS
#define SORT_KEYS (64u << 20)  // the size that is timed; 1/64, 1/512 and 1/4096 of it are too
#endif
#ifndef SORT_HUGE_KEYS
#define SORT_HUGE_KEYS (1u << 28)  // checked once, where the card has the memory
#endif
#ifndef SORT_RUNS
#define SORT_RUNS 100  // repeated runs on one input: an order that changes would show
#endif
#ifndef SORT_TIMED_RUNS
#define SORT_TIMED_RUNS 21  // their median is the time
#endif

constexpr int kBins = 256;  // one per byte value
constexpr int kLanes = 32;
constexpr int kWarps = 24;
constexpr int kThreads = kWarps * kLanes;
constexpr int kParts = kThreads / kBins;  // threads that share the work on one bin
constexpr int kWarpsPerPart = kWarps / kParts;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr unsigned kMaxKeys = 1u << 31;  // positions are 32-bit, and a tile may reach past the end
constexpr int kTimedRuns = SORT_TIMED_RUNS;
constexpr int kWarmupRuns = 3;

static_assert(kThreads % kBins == 0, "every bin is looked after by the same number of threads");
static_assert(SORT_KEYS < kMaxKeys && SORT_HUGE_KEYS < kMaxKeys, "positions are 32-bit");

// A tile is what a block sorts at once: kRows rows of 32 keys for each warp. Large tiles make long
// runs of equal keys, and long runs make whole 32-byte sectors when they are written.
template <int kRows>
struct Tile {
  static constexpr unsigned kKeys = kThreads * kRows;
  // The warps' counters, one slot in front of the sorted tile, the sorted tile.
  static constexpr size_t kSharedBytes = sizeof(unsigned) * (kWarps * kBins + 1 + kKeys);
  static_assert(kKeys <= 65536, "an index within the tile has 16 bits");
};
constexpr int kBigRows = 32;   // 120 KiB of shared memory, one block an SM
constexpr int kSmallRows = 8;  // 48 KiB: for few keys, and for cards with less shared memory

// common: cuda_check
// Prints the place, the call and the reason to stderr, and ends the program with status 1. When the
// program holds no code for this GPU there is a remedy, so that error names the option to use.
[[noreturn]] inline void cudaFailed(const char* file, int line, const char* call,
                                    cudaError_t error) {
  std::fprintf(stderr, "%s:%d: %s failed: %s (error %d)\n", file, line, call,
               cudaGetErrorString(error), static_cast<int>(error));
  cudaDeviceProp device;
  if (error == cudaErrorNoKernelImageForDevice &&
      cudaGetDeviceProperties(&device, 0) == cudaSuccess) {
    std::fprintf(stderr, "%s needs a build with -arch=sm_%d%d\n", device.name, device.major,
                 device.minor);
  }
  std::exit(1);
}

// Evaluates a CUDA call once. Any result other than success ends the program.
#define CUDA_CHECK(call)                                                      \
  do {                                                                        \
    const cudaError_t error_ = (call);                                        \
    if (error_ != cudaSuccess) cudaFailed(__FILE__, __LINE__, #call, error_); \
  } while (0)
// end common: cuda_check

// common: find_device
// Returns true and fills *device when there is a GPU to run on. Returns false and fills *why when
// there is none: no driver (error 35), no device (error 100), or a count of 0. Only these may be
// taken for "no GPU"; any other error is a fault and ends the program with status 1.
bool findDevice(cudaDeviceProp* device, const char** why) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ||
      (error == cudaSuccess && count == 0)) {
    *why = error == cudaSuccess ? "the device count is 0" : cudaGetErrorString(error);
    cudaGetLastError();  // Clear it, or the next check would report it again.
    return false;
  }
  CUDA_CHECK(error);
  CUDA_CHECK(cudaGetDeviceProperties(device, 0));
  return true;
}
// end common: find_device

// ---- Step 1: count each chunk. 1 byte per element, and the only pass that needs nothing else ---

// Every block owns one chunk, here and in step 3. g_counts[bin * chunks + chunk] receives how many
// keys of the chunk fall into the bin. Launch with `chunks` blocks of any size.
__global__ void countChunks(const unsigned char* __restrict__ g_keys, unsigned n,
                            unsigned chunk_keys, unsigned* g_counts) {
  // A column per lane: the counter of bin b for lane l is in bank l, so lanes never collide.
  __shared__ unsigned s_column[kBins * kLanes];
  for (unsigned i = threadIdx.x; i < kBins * kLanes; i += blockDim.x) s_column[i] = 0;
  __syncthreads();

  unsigned* mine = s_column + threadIdx.x % kLanes;
  const auto count = [mine](unsigned key) { atomicAdd(mine + (key & 0xff) * kLanes, 1u); };

  const unsigned begin = min(blockIdx.x * chunk_keys, n);
  const unsigned keys = min(chunk_keys, n - begin);
  const unsigned char* g_chunk = g_keys + begin;
  // 16-byte loads need a 16-byte boundary; the few keys before the first and after the last
  // boundary are counted one by one.
  const unsigned to_boundary = (16 - reinterpret_cast<uintptr_t>(g_chunk) % 16) % 16;
  const unsigned head = min(to_boundary, keys);
  const unsigned vectors = (keys - head) / 16;
  for (unsigned i = threadIdx.x; i < head; i += blockDim.x) count(g_chunk[i]);
  for (unsigned i = head + vectors * 16 + threadIdx.x; i < keys; i += blockDim.x) count(g_chunk[i]);
  const uint4* g_vector = reinterpret_cast<const uint4*>(g_chunk + head);
#pragma unroll 4  // so that several loads are in flight
  for (unsigned i = threadIdx.x; i < vectors; i += blockDim.x) {
    const uint4 v = g_vector[i];
    const unsigned word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int byte = 0; byte < 16; ++byte) count(word[byte / 4] >> byte % 4 * 8);
  }
  __syncthreads();

  for (unsigned bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
    unsigned sum = 0;
    // Start at another lane in every thread, or all 32 would read the same bank.
    for (unsigned k = 0; k < kLanes; ++k) sum += s_column[bin * kLanes + (k + bin) % kLanes];
    g_counts[bin * gridDim.x + blockIdx.x] = sum;
  }
}

// ---- Step 2: counts become offsets, per bin over the chunks ------------------------------------

// Inclusive scan over the lanes of a warp. All 32 lanes call it.
__device__ __forceinline__ unsigned scanLanes(unsigned value) {
  const unsigned lane = threadIdx.x % kLanes;
  for (unsigned step = 1; step < kLanes; step *= 2) {
    const unsigned left = __shfl_up_sync(kAllLanes, value, step);
    if (lane >= step) value += left;
  }
  return value;
}

// One warp a bin: g_before[bin * chunks + chunk] receives the number of the bin's keys in earlier
// chunks, g_totals[bin] the number in all. Launch with kBins warps in whole blocks.
__global__ void scanChunks(const unsigned* __restrict__ g_counts, unsigned chunks,
                           unsigned* __restrict__ g_before, unsigned* __restrict__ g_totals) {
  const unsigned bin = (blockIdx.x * blockDim.x + threadIdx.x) / kLanes;
  const unsigned lane = threadIdx.x % kLanes;
  unsigned before = 0;
#pragma unroll 8
  for (unsigned chunk = lane; chunk - lane < chunks; chunk += kLanes) {
    const unsigned count = chunk < chunks ? g_counts[bin * chunks + chunk] : 0;
    const unsigned upto = scanLanes(count);
    if (chunk < chunks) g_before[bin * chunks + chunk] = before + upto - count;
    before += __shfl_sync(kAllLanes, upto, kLanes - 1);
  }
  if (lane == 0) g_totals[bin] = before;
}

// ---- Step 3: place. A block walks its chunk tile by tile ---------------------------------------

// Exclusive scan over the bins; thread t brings the value of bin t % kBins. Each part of the block
// computes the same, so that every thread knows its bin's result. Contains one barrier.
__device__ __forceinline__ unsigned scanBins(unsigned value, unsigned* s_warp_sum) {
  const unsigned lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const unsigned upto = scanLanes(value);
  if (lane == kLanes - 1) s_warp_sum[warp] = upto;
  __syncthreads();
  const unsigned first_warp = warp / kWarpsPerPart * kWarpsPerPart;
  unsigned before = 0;
#pragma unroll
  for (unsigned k = 0; k < kWarpsPerPart; ++k) {
    if (first_warp + k < warp) before += s_warp_sum[first_warp + k];
  }
  return before + upto - value;
}

// 3a. Load a thread's keys, one of each row. `left` keys remain from the thread's first one on.
// A key that does not exist reads 255: it comes last in its tile and never gets a real key's place.
template <int kRows>
__device__ __forceinline__ void loadKeys(const unsigned char* g_first, int left,
                                         unsigned (&key)[kRows]) {
  if (left > (kRows - 1) * kLanes) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) key[row] = g_first[row * kLanes];
  } else {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      key[row] = row * kLanes < left ? g_first[row * kLanes] : kBins - 1;
    }
  }
}

// 3b. Rank: how many equal keys come before this one in the warp's rows. atomicAdd on a counter of
// the warp's own returns just that, row after row: one instruction per 32 keys, where a rank built
// from ballots takes several for each of the eight bits. Two equal keys of ONE row may be served in
// any order; 3e deals with that. On return key[row] holds rank << 8 | key.
template <int kRows>
__device__ __forceinline__ void rankInWarp(unsigned (&key)[kRows], unsigned* s_count) {
  const unsigned lane = threadIdx.x % kLanes;
  // A warp that sees one value only would queue 32 lanes at one counter. Its ranks are plain.
  unsigned differs = key[0] ^ __shfl_sync(kAllLanes, key[0], 0);
#pragma unroll
  for (int row = 1; row < kRows; ++row) differs |= key[row] ^ key[0];
  if (__all_sync(kAllLanes, differs == 0)) {
    if (lane == 0) s_count[key[0]] = kRows * kLanes;
#pragma unroll
    for (int row = 0; row < kRows; ++row) key[row] |= (row * kLanes + lane) << 8;
    return;
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    key[row] |= atomicAdd(&s_count[key[row]], 1u) << 8;
    __syncwarp();  // A row is counted before the next one starts.
  }
}

// 3c. Scan over (bin, warp): s_count[warp][bin] becomes the place in the tile where that warp's
// keys of that bin start. Returns where this thread's bin starts, and adds its keys to *total.
__device__ __forceinline__ unsigned scanTile(unsigned* s_count, unsigned (*s_part)[kBins],
                                             unsigned* s_warp_sum, unsigned* total) {
  const unsigned bin = threadIdx.x % kBins, part = threadIdx.x / kBins;
  unsigned* column = s_count + part * kWarpsPerPart * kBins + bin;
  unsigned before[kWarpsPerPart], sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarpsPerPart; ++warp) {
    before[warp] = sum;
    sum += column[warp * kBins];
  }
  s_part[part][bin] = sum;
  __syncthreads();
  unsigned in_earlier_parts = 0, in_tile = 0;
#pragma unroll
  for (unsigned k = 0; k < kParts; ++k) {
    if (k < part) in_earlier_parts += s_part[k][bin];
    in_tile += s_part[k][bin];
  }
  const unsigned start = scanBins(in_tile, s_warp_sum);
#pragma unroll
  for (int warp = 0; warp < kWarpsPerPart; ++warp) {
    column[warp * kBins] = start + in_earlier_parts + before[warp];
  }
  *total += in_tile;
  return start;
}

// 3e. Write the indices of a sorted tile: neighbors in the tile are neighbors in memory, so a warp
// writes 128 bytes at once wherever a bin has 32 keys. An entry is key << 16 | index in the tile;
// the one at `place` goes to g_index[s_to_global[key] + place]. A tile is in stable order exactly
// when its entries ascend. Returns false where this thread saw one that does not.
template <int kRows>
__device__ __forceinline__ bool writeIndices(const unsigned* s_sorted, unsigned keys,
                                             const unsigned* s_to_global, unsigned tile_begin,
                                             unsigned* g_index) {
  constexpr int kBatch = 8;  // independent loads that hide each other's latency
  static_assert(kRows % kBatch == 0, "whole batches");
  const bool full = keys == Tile<kRows>::kKeys;
  const int first = threadIdx.x / kLanes * kRows * kLanes + threadIdx.x % kLanes;
  bool ascends = true;
#pragma unroll
  for (int row = 0; row < kRows; row += kBatch) {
    unsigned entry[kBatch], left[kBatch], to_global[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      entry[k] = s_sorted[first + (row + k) * kLanes];
      left[k] = s_sorted[first + (row + k) * kLanes - 1];
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      to_global[k] = s_to_global[entry[k] >> 16];
      ascends &= left[k] <= entry[k];
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const unsigned place = first + (row + k) * kLanes;
      if (full || place < keys) {
        g_index[to_global[k] + place] = tile_begin + (entry[k] & 0xffff);
      }
    }
  }
  return ascends;
}

// The repair: one round of odd-even transposition, a sort that only ever swaps neighbors. Equal
// keys of a row that were served out of order stand next to each other, so a few rounds do.
__device__ void swapNeighbors(unsigned* s_sorted, unsigned tile_keys) {
  for (unsigned odd = 0; odd < 2; ++odd) {
    for (unsigned i = 2 * threadIdx.x + odd; i + 1 < tile_keys; i += 2 * kThreads) {
      const unsigned a = s_sorted[i], b = s_sorted[i + 1];
      s_sorted[i] = min(a, b);
      s_sorted[i + 1] = max(a, b);
    }
    __syncthreads();
  }
}

// 3f. The sorted keys need no input at all: the totals say which runs to write. Fills places
// [begin, begin + keys) of g_sorted, 16 at a time where that is aligned. *bin is the bin of the
// thread's last place; places only go up, and so does it.
__device__ __forceinline__ void fillKeys(unsigned char* g_sorted, unsigned begin, unsigned keys,
                                         const unsigned* s_bin_end, unsigned* bin) {
  unsigned char* g_out = g_sorted + begin;
  const unsigned vectors = reinterpret_cast<uintptr_t>(g_out) % 16 == 0 ? keys / 16 : 0;
  for (unsigned i = threadIdx.x; i < vectors; i += kThreads) {
    const unsigned place = begin + i * 16;
    while (place >= s_bin_end[*bin]) ++*bin;
    if (place + 15 < s_bin_end[*bin]) {
      const unsigned word = *bin * 0x01010101u;
      reinterpret_cast<uint4*>(g_out)[i] = make_uint4(word, word, word, word);
    } else {  // A bin ends within these 16 places.
      unsigned b = *bin;
      for (unsigned k = 0; k < 16; ++k) {
        while (place + k >= s_bin_end[b]) ++b;
        g_out[i * 16 + k] = static_cast<unsigned char>(b);
      }
    }
  }
  for (unsigned i = vectors * 16 + threadIdx.x; i < keys; i += kThreads) {
    while (begin + i >= s_bin_end[*bin]) ++*bin;
    g_out[i] = static_cast<unsigned char>(*bin);
  }
}

// The bin that `place` of the sorted keys belongs to, by bisection.
__device__ __forceinline__ unsigned binOf(unsigned place, const unsigned* s_bin_end) {
  unsigned low = 0, high = kBins - 1;
  while (low < high) {
    const unsigned middle = (low + high) / 2;
    if (place >= s_bin_end[middle]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// The whole of step 3; g_before and g_totals come from scanChunks. Launch with as many blocks as
// countChunks, kThreads threads and Tile<kRows>::kSharedBytes of dynamic shared memory. g_repairs
// counts the tiles whose atomics were not served in lane order.
template <int kRows>
__global__ void __launch_bounds__(kThreads)
    sortChunks(const unsigned char* __restrict__ g_keys, unsigned n, unsigned chunk_keys,
               const unsigned* __restrict__ g_before, const unsigned* __restrict__ g_totals,
               unsigned char* __restrict__ g_sorted, unsigned* __restrict__ g_index,
               unsigned* g_repairs) {
  constexpr unsigned kTileKeys = Tile<kRows>::kKeys;
  extern __shared__ unsigned s_dynamic[];
  __shared__ unsigned s_bin_end[kBins], s_to_global[kBins];
  __shared__ unsigned s_part[kParts][kBins], s_warp_sum[kWarps];
  unsigned* s_count = s_dynamic;                        // [kWarps][kBins]
  unsigned* s_sorted = s_dynamic + kWarps * kBins + 1;  // the slot before it holds 0, which is
  if (threadIdx.x == 0) s_sorted[-1] = 0;               // below every entry: place 0 has a neighbor

  const unsigned lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const unsigned bin = threadIdx.x % kBins;
  const unsigned begin = min(blockIdx.x * chunk_keys, n), end = min(begin + chunk_keys, n);
  if (begin == end) return;  // The same for the whole block: no thread waits at a barrier below.

  const unsigned bin_start = scanBins(g_totals[bin], s_warp_sum);
  if (threadIdx.x < kBins) s_bin_end[bin] = bin_start + g_totals[bin];
  // Where this chunk's next key of this thread's bin goes.
  unsigned next = bin_start + g_before[bin * gridDim.x + blockIdx.x];

  unsigned* s_mine = s_count + warp * kBins;
  const unsigned first = warp * kRows * kLanes + lane;  // this thread's key in the warp's row 0
  unsigned key[kRows];
  loadKeys(g_keys + begin + first, static_cast<int>(end - begin) - static_cast<int>(first), key);
  for (int k = 0; k < kBins / kLanes; ++k) s_mine[k * kLanes + lane] = 0;
  __syncthreads();
  unsigned fill_bin = binOf(begin, s_bin_end);

  for (unsigned tile = begin; tile < end; tile += kTileKeys) {
    const unsigned keys = min(kTileKeys, end - tile);
    rankInWarp(key, s_mine);
    __syncthreads();
    unsigned total = 0;
    const unsigned start = scanTile(s_count, s_part, s_warp_sum, &total);
    if (threadIdx.x < kBins) s_to_global[bin] = next - start;
    next += total;
    __syncthreads();

    // 3d. Place: start of the warp's keys of this bin, plus the rank among them.
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const unsigned own = key[row] & 0xff;
      s_sorted[s_mine[own] + (key[row] >> 8)] = own << 16 | (first + row * kLanes);
    }
    // The registers are free now: fetch the next tile while this one is written.
    const unsigned ahead = tile + kTileKeys;
    if (ahead < end) {
      loadKeys(g_keys + ahead + first, static_cast<int>(end - ahead) - static_cast<int>(first),
               key);
    }
    __syncthreads();

    for (int k = 0; k < kBins / kLanes; ++k) s_mine[k * kLanes + lane] = 0;
    bool repaired = false;
    while (__syncthreads_or(!writeIndices<kRows>(s_sorted, keys, s_to_global, tile, g_index))) {
      swapNeighbors(s_sorted, kTileKeys);
      repaired = true;
    }
    if (repaired && threadIdx.x == 0) atomicAdd(g_repairs, 1u);
    fillKeys(g_sorted, tile, keys, s_bin_end, &fill_bin);
  }
}

// ---- The sort as one call ----------------------------------------------------------------------

template <class T>
struct DeviceArray {
  T* data = nullptr;
  explicit DeviceArray(size_t n) { CUDA_CHECK(cudaMalloc(&data, n * sizeof(T))); }
  ~DeviceArray() { cudaFree(data); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
};

// Lets sortChunks<kRows> use the shared memory it needs. Returns how many of its blocks the device
// holds at a time, 0 where its shared memory is too small.
template <int kRows>
unsigned residentBlocks(const cudaDeviceProp& device) {
  const size_t bytes = Tile<kRows>::kSharedBytes;
  if (bytes > device.sharedMemPerBlockOptin) return 0;
  CUDA_CHECK(cudaFuncSetAttribute(sortChunks<kRows>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)));
  int per_sm = 0;
  CUDA_CHECK(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, sortChunks<kRows>, kThreads, bytes));
  return static_cast<unsigned>(per_sm * device.multiProcessorCount);
}

unsigned ceilDiv(unsigned a, unsigned b) {
  return a / b + (a % b != 0);
}

// What a sort needs beside its input and output. Made once, used for any number of sorts.
class CountingSort {
 public:
  explicit CountingSort(const cudaDeviceProp& device)
      : big_blocks_(residentBlocks<kBigRows>(device)),
        small_blocks_(residentBlocks<kSmallRows>(device)),
        counts_(kBins * std::max(big_blocks_, small_blocks_)),
        before_(kBins * std::max(big_blocks_, small_blocks_)),
        totals_(kBins),
        repairs_(1) {
    CUDA_CHECK(cudaMemset(repairs_.data, 0, sizeof(unsigned)));
  }

  // Sorts n <= kMaxKeys keys. d_sorted receives them in order, d_index the original place of each.
  // Any alignment of d_keys and d_sorted. Asynchronous, like any launch.
  void operator()(const unsigned char* d_keys, unsigned n, unsigned char* d_sorted,
                  unsigned* d_index) {
    const bool big = hasBigTiles() && n / big_blocks_ >= 2 * Tile<kBigRows>::kKeys;
    withTiles(big, d_keys, n, d_sorted, d_index);
  }

  // The same with tiles of a given size, for the checks. Big tiles only where hasBigTiles().
  void withTiles(bool big, const unsigned char* d_keys, unsigned n, unsigned char* d_sorted,
                 unsigned* d_index) {
    if (n == 0) return;  // A grid of zero blocks is not a valid launch.
    if (big) {
      launch<kBigRows>(big_blocks_, d_keys, n, d_sorted, d_index);
    } else {
      launch<kSmallRows>(small_blocks_, d_keys, n, d_sorted, d_index);
    }
  }

  bool hasBigTiles() const { return big_blocks_ != 0; }

  // How many tiles, in all sorts so far, had to be put in order after their ranking.
  unsigned repairs() const {
    unsigned count = 0;
    CUDA_CHECK(cudaMemcpy(&count, repairs_.data, sizeof(count), cudaMemcpyDeviceToHost));
    return count;
  }

 private:
  // One chunk for each block that can run at a time, in whole 16-byte vectors, but not so few keys
  // that a block is started for nothing.
  template <int kRows>
  void launch(unsigned resident, const unsigned char* d_keys, unsigned n, unsigned char* d_sorted,
              unsigned* d_index) {
    const unsigned chunk_keys = std::max(ceilDiv(ceilDiv(n, resident), 16) * 16, 1024u);
    const unsigned chunks = ceilDiv(n, chunk_keys);
    countChunks<<<chunks, 1024>>>(d_keys, n, chunk_keys, counts_.data);
    CUDA_CHECK(cudaGetLastError());
    scanChunks<<<kBins * kLanes / 256, 256>>>(counts_.data, chunks, before_.data, totals_.data);
    CUDA_CHECK(cudaGetLastError());
    sortChunks<kRows><<<chunks, kThreads, Tile<kRows>::kSharedBytes>>>(
        d_keys, n, chunk_keys, before_.data, totals_.data, d_sorted, d_index, repairs_.data);
    CUDA_CHECK(cudaGetLastError());
  }

  unsigned big_blocks_, small_blocks_;
  DeviceArray<unsigned> counts_, before_, totals_, repairs_;
};

// ---- Inputs and the check ----------------------------------------------------------------------

enum class Input { uniform, text, one_byte, sorted, reversed, two_values, rare_value };
constexpr Input kInputs[] = {Input::uniform,  Input::text,       Input::one_byte,  Input::sorted,
                             Input::reversed, Input::two_values, Input::rare_value};
constexpr const char* kInputNames[] = {"uniform bytes", "english text", "all one byte",  "sorted",
                                       "reversed",      "two values",   "one rare value"};
__constant__ const char kText[] =
    "A stable sort keeps equal keys in the order in which they came. One thread gets that for "
    "free, "
    "because it takes the keys one after another. Thousands of threads have no such order, so the "
    "sort must bring its own: count before a key is moved, and give it the place that is its "
    "own.\n";

// Makes every key from its position alone: no state and no clock is involved. The multipliers are
// those of splitmix64 (Steele, Lea, Flood 2014).
__global__ void makeKeys(unsigned char* g_keys, unsigned n, Input input) {
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<size_t>(gridDim.x) * blockDim.x) {
    uint64_t mixed = (i + 1) * 0x9E3779B97F4A7C15ull;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9ull;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBull;
    const unsigned ramp = static_cast<unsigned>(static_cast<uint64_t>(i) * kBins / n);
    unsigned key = 'e';
    if (input == Input::uniform) key = static_cast<unsigned>(mixed >> 56);
    if (input == Input::text) key = static_cast<unsigned char>(kText[i % (sizeof(kText) - 1)]);
    if (input == Input::sorted) key = ramp;
    if (input == Input::reversed) key = kBins - 1 - ramp;
    if (input == Input::two_values) key = mixed >> 63 ? 'a' : 'q';
    if (input == Input::rare_value) key = i == n / 3 ? 0 : 255;
    g_keys[i] = static_cast<unsigned char>(key);
  }
}

// Counts the places at which (sorted, index) is not the stable sort of the keys. Every place must
// show an element of the input with its own key, and the pairs (key, index) must ascend strictly.
// n different elements in ascending order are all n of them, in the only stable order there is.
__global__ void countWrong(const unsigned char* g_keys, const unsigned char* g_sorted,
                           const unsigned* g_index, unsigned n, unsigned long long* g_wrong) {
  unsigned long long wrong = 0;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < n;
       i += static_cast<size_t>(gridDim.x) * blockDim.x) {
    const unsigned key = g_sorted[i], index = g_index[i];
    const bool follows =
        i == 0 || g_sorted[i - 1] < key || (g_sorted[i - 1] == key && g_index[i - 1] < index);
    wrong += !(index < n && g_keys[index] == key && follows);
  }
  if (wrong != 0) atomicAdd(g_wrong, wrong);
}

unsigned gridFor(unsigned n) {
  return std::min(ceilDiv(n, 256) + 1, 1024u);
}

constexpr unsigned kSlack = 16;  // room to move a pointer off its alignment

// Input, outputs and the checks on them. Any fault ends the program with status 1.
struct Bench {
  explicit Bench(size_t n) : keys(n + kSlack), sorted(n + kSlack), index(n), wrong(1) {}

  void requireStable(const char* who, const unsigned* d_index, unsigned n, unsigned offset) {
    const unsigned long long count = wrongPlaces(d_index, n, offset);
    if (count == 0) return;
    std::fprintf(stderr, "MISMATCH: %s, %u keys: %llu places are wrong\n", who, n, count);
    std::exit(1);
  }

  unsigned long long wrongPlaces(const unsigned* d_index, unsigned n, unsigned offset) {
    unsigned long long count = 0;
    CUDA_CHECK(cudaMemset(wrong.data, 0, sizeof(count)));
    countWrong<<<gridFor(n), 256>>>(keys.data + offset, sorted.data + offset, d_index, n,
                                    wrong.data);
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaMemcpy(&count, wrong.data, sizeof(count), cudaMemcpyDeviceToHost));
    return count;
  }

  // Sorts n keys with tiles of both sizes, with both byte pointers moved by `offset`, and checks.
  // The outputs are poisoned first: no index can be 0xffffffff.
  void sortAndCheck(CountingSort& sort, unsigned n, Input input, unsigned offset) {
    makeKeys<<<gridFor(n), 256>>>(keys.data + offset, n, input);
    CUDA_CHECK(cudaGetLastError());
    for (bool big : {false, true}) {
      if (big && !sort.hasBigTiles()) continue;
      CUDA_CHECK(cudaMemset(sorted.data, 0xff, n + kSlack));
      CUDA_CHECK(cudaMemset(index.data, 0xff, n * sizeof(unsigned)));
      sort.withTiles(big, keys.data + offset, n, sorted.data + offset, index.data);
      requireStable(kInputNames[static_cast<int>(input)], index.data, n, offset);
    }
  }

  DeviceArray<unsigned char> keys, sorted;
  DeviceArray<unsigned> index;
  DeviceArray<unsigned long long> wrong;
};

// A check that cannot fail proves nothing: swap two equal keys and it must say so.
void checkTheCheck(CountingSort& sort, Bench& bench) {
  bench.sortAndCheck(sort, 1000, Input::one_byte, 0);
  const unsigned swapped[2] = {1, 0};
  CUDA_CHECK(cudaMemcpy(bench.index.data, swapped, sizeof(swapped), cudaMemcpyHostToDevice));
  if (bench.wrongPlaces(bench.index.data, 1000, 0) != 0) return;
  std::fprintf(stderr, "MISMATCH: the check overlooks two swapped elements\n");
  std::exit(1);
}

// Every input around every tile edge, every alignment, and repeated runs on the largest size.
void checkAll(CountingSort& sort, Bench& bench) {
  constexpr unsigned kSmall = Tile<kSmallRows>::kKeys, kBig = Tile<kBigRows>::kKeys;
  for (unsigned n : {0u, 1u, 2u, 31u, 32u, 33u, 257u, 1023u, 1025u, kSmall - 1, kSmall, kSmall + 1,
                     kBig - 1, kBig, kBig + 1, SORT_KEYS + 611u}) {
    for (Input input : kInputs) bench.sortAndCheck(sort, n, input, n % kSlack);
  }
  for (unsigned offset = 0; offset < kSlack; ++offset) {
    bench.sortAndCheck(sort, 3991, Input::uniform, offset);
  }
  for (int run = 0; run < SORT_RUNS; ++run) bench.sortAndCheck(sort, SORT_KEYS, Input::text, 0);
}

// Returns false where the card's free memory is too small for SORT_HUGE_KEYS.
bool checkHuge(CountingSort& sort) {
  size_t free_bytes = 0, all_bytes = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_bytes, &all_bytes));
  if (free_bytes / 7 < SORT_HUGE_KEYS) return false;  // 6 bytes a key, and some to spare
  Bench bench(SORT_HUGE_KEYS);
  bench.sortAndCheck(sort, SORT_HUGE_KEYS, Input::uniform, 0);
  return true;
}

// ---- Timing and main ---------------------------------------------------------------------------

// Median time of one launch() in milliseconds, each run between its own pair of events, after
// warm-ups. A time that is not positive ends the program.
template <class Launch>
float medianMs(Launch launch) {
  cudaEvent_t start, stop;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&stop));
  for (int run = 0; run < kWarmupRuns; ++run) launch();
  std::vector<float> ms(kTimedRuns);
  for (float& time : ms) {
    CUDA_CHECK(cudaEventRecord(start));
    launch();
    CUDA_CHECK(cudaEventRecord(stop));
    CUDA_CHECK(cudaEventSynchronize(stop));
    CUDA_CHECK(cudaEventElapsedTime(&time, start, stop));
    if (!(time > 0.0f)) {
      std::fprintf(stderr, "a measured time of %g ms cannot be true; the timing is void\n", time);
      std::exit(1);
    }
  }
  CUDA_CHECK(cudaEventDestroy(start));
  CUDA_CHECK(cudaEventDestroy(stop));
  std::nth_element(ms.begin(), ms.begin() + kTimedRuns / 2, ms.end());
  return ms[kTimedRuns / 2];
}

struct Row {
  unsigned keys;
  Input input;
  float cub_ms, ours_ms;
};

// Times CUB and ours on the same keys, one right after the other, and checks both.
Row measure(CountingSort& sort, Bench& bench, unsigned n, Input input,
            const DeviceArray<unsigned>& identity, const DeviceArray<unsigned>& cub_index) {
  bench.sortAndCheck(sort, n, input, 0);
  size_t bytes = 0;
  const auto sortPairs = [&](void* d_temporary) {
    CUDA_CHECK(cub::DeviceRadixSort::SortPairs(
        d_temporary, bytes, bench.keys.data, bench.sorted.data, identity.data, cub_index.data, n));
  };
  sortPairs(nullptr);  // asks for the size only
  const DeviceArray<unsigned char> temporary(bytes);
  const float cub_ms = medianMs([&] { sortPairs(temporary.data); });
  bench.requireStable("CUB", cub_index.data, n, 0);
  const float ours_ms =
      medianMs([&] { sort(bench.keys.data, n, bench.sorted.data, bench.index.data); });
  bench.requireStable("after timing", bench.index.data, n, 0);
  return {n, input, cub_ms, ours_ms};
}

std::vector<Row> measureAll(CountingSort& sort, Bench& bench) {
  DeviceArray<unsigned> identity(SORT_KEYS), cub_index(SORT_KEYS);
  std::vector<unsigned> h_identity(SORT_KEYS);
  for (unsigned i = 0; i < SORT_KEYS; ++i) h_identity[i] = i;
  CUDA_CHECK(cudaMemcpy(identity.data, h_identity.data(), SORT_KEYS * sizeof(unsigned),
                        cudaMemcpyHostToDevice));
  std::vector<Row> rows;
  for (unsigned parts : {4096u, 512u, 64u, 1u}) {
    for (Input input : {Input::uniform, Input::text, Input::one_byte}) {
      rows.push_back(measure(sort, bench, SORT_KEYS / parts, input, identity, cub_index));
    }
  }
  for (Input input : {Input::sorted, Input::two_values}) {
    rows.push_back(measure(sort, bench, SORT_KEYS, input, identity, cub_index));
  }
  return rows;
}

void printResults(const cudaDeviceProp& device, const std::vector<Row>& rows, bool huge,
                  unsigned repairs) {
  std::printf("=== Section 7.6: a stable counting sort at the speed of the machine ===\n\n");
  std::printf("GPU: %s, compute capability %d.%d\n", device.name, device.major, device.minor);
  std::printf("tiles of %u keys, of %u for small inputs\n\n", Tile<kBigRows>::kKeys,
              Tile<kSmallRows>::kKeys);
  std::printf("right and stable: every input at every tile edge, 16 alignments\n");
  std::printf("right and stable: %u keys, every input; %d runs of english text\n", SORT_KEYS + 611u,
              SORT_RUNS);
  std::printf("%u keys: %s\n", SORT_HUGE_KEYS,
              huge ? "right and stable" : "left out, too little free memory");
  std::printf("tiles put in order after their ranking: %u\n\n", repairs);
  std::printf("%12s  %-15s%12s%12s%9s\n", "keys", "input", "CUB (ms)", "ours (ms)", "ratio");
  for (const Row& row : rows) {
    std::printf("%12u  %-15s%12.4f%12.4f%9.2f\n", row.keys,
                kInputNames[static_cast<int>(row.input)], row.cub_ms, row.ours_ms,
                row.cub_ms / row.ours_ms);
  }
  std::printf(
      "\nmedian of %d runs each; ratio is CUB's time over ours: above 1, ours is faster\n\n",
      kTimedRuns);
  std::printf("self-check: every output is the stable order of its input: confirmed\n");
}

int main() {
  cudaDeviceProp device;
  const char* why = nullptr;
  if (!findDevice(&device, &why)) {
    std::fprintf(stderr, "no device to sort on: %s\n", why);
    return 77;
  }
  CountingSort sort(device);
  Bench bench(SORT_KEYS + 2 * Tile<kBigRows>::kKeys);
  checkTheCheck(sort, bench);
  checkAll(sort, bench);
  const bool huge = checkHuge(sort);
  const std::vector<Row> rows = measureAll(sort, bench);
  printResults(device, rows, huge, sort.repairs());
  return 0;
}
