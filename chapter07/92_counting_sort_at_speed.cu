// SPDX-License-Identifier: MIT
//
// 7.6  A stable counting sort at speed
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
#include <numeric>
#include <vector>

#ifndef SORT_KEYS
#define SORT_KEYS (64u << 20)  // the size that is timed; 1/64, 1/512 and 1/4096 of it are too
#endif
#ifndef SORT_HUGE_KEYS
#define SORT_HUGE_KEYS (1u << 28)  // checked where the card has the memory
#endif
#ifndef SORT_CHUNKS
#define SORT_CHUNKS 0  // blocks; 0: one a multiprocessor. With few, a slow sanitizer sees all loops
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
// In a tile each warp has so many rows of 32 keys, one key for each lane.
constexpr int kBigRows = 32;   // takes 122 KiB of shared memory
constexpr int kSmallRows = 8;  // takes 50 KiB, for cards that have less
constexpr unsigned kAllLanes = 0xffffffffu;

static_assert(SORT_KEYS < 1u << 31 && SORT_HUGE_KEYS < 1u << 31,
              "positions are 32-bit, and a tile may reach past the end");

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

// ---- Step 1: count each chunk. 1 byte per element ----------------------------------------------

// Every block owns one chunk, here and in step 3. g_counts[bin * chunks + chunk] receives how many
// keys of the chunk fall into the bin. Launch `chunks` blocks of any size that cover n keys;
// chunk_keys is a multiple of 16.
__global__ void countChunks(const unsigned char* __restrict__ g_keys, unsigned n,
                            unsigned chunk_keys, unsigned* g_counts) {
  // A column per lane: the counter of bin b for lane l is in bank l, so lanes never collide.
  __shared__ unsigned s_column[kBins][kLanes];
  for (unsigned i = threadIdx.x; i < kBins * kLanes; i += blockDim.x) {
    s_column[i / kLanes][i % kLanes] = 0;
  }
  __syncthreads();

  const unsigned lane = threadIdx.x % kLanes;
  const unsigned begin = min(blockIdx.x * chunk_keys, n), keys = min(chunk_keys, n - begin);
  const unsigned char* g_chunk = g_keys + begin;
  // 16-byte loads need a 16-byte boundary. Without one, and at the end, bytes are read one by one.
  const bool aligned = reinterpret_cast<uintptr_t>(g_chunk) % 16 == 0;
  const unsigned vectors = aligned ? keys / 16 : 0;
#pragma unroll 4  // so that several loads are in flight
  for (unsigned i = threadIdx.x; i < vectors; i += blockDim.x) {
    const uint4 v = reinterpret_cast<const uint4*>(g_chunk)[i];
    const unsigned word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 16; ++k) atomicAdd(&s_column[word[k / 4] >> k % 4 * 8 & 0xff][lane], 1u);
  }
  for (unsigned i = vectors * 16 + threadIdx.x; i < keys; i += blockDim.x) {
    atomicAdd(&s_column[g_chunk[i]][lane], 1u);
  }
  __syncthreads();

  for (unsigned bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
    unsigned sum = 0;
    // Start at another lane in every thread, or all 32 would read the same bank.
    for (unsigned k = 0; k < kLanes; ++k) sum += s_column[bin][(k + bin) % kLanes];
    g_counts[bin * gridDim.x + blockIdx.x] = sum;
  }
}

// ---- Step 2: counts become offsets, per bin over the chunks ------------------------------------

// Inclusive scan over the lanes of a warp. All 32 lanes call it.
__device__ __forceinline__ unsigned scanLanes(unsigned value) {
  for (unsigned step = 1; step < kLanes; step *= 2) {
    const unsigned left = __shfl_up_sync(kAllLanes, value, step);
    if (threadIdx.x % kLanes >= step) value += left;
  }
  return value;
}

// One warp a bin: its counts in g_counts become the number of the bin's keys in earlier chunks, and
// g_totals[bin] receives the number in all. Launch kBins warps in whole blocks.
__global__ void scanChunks(unsigned* g_counts, unsigned chunks, unsigned* g_totals) {
  const unsigned bin = (blockIdx.x * blockDim.x + threadIdx.x) / kLanes;
  unsigned before = 0;
#pragma unroll 4
  for (unsigned first = 0; first < chunks; first += kLanes) {
    const unsigned chunk = first + threadIdx.x % kLanes;
    const unsigned count = chunk < chunks ? g_counts[bin * chunks + chunk] : 0;
    const unsigned upto = before + scanLanes(count);
    if (chunk < chunks) g_counts[bin * chunks + chunk] = upto - count;
    before = __shfl_sync(kAllLanes, upto, kLanes - 1);
  }
  if (threadIdx.x % kLanes == 0) g_totals[bin] = before;
}

// ---- Step 3: place. A block walks its chunk tile by tile ---------------------------------------

// What a block has in shared memory. A tile is what it sorts at once. Large tiles make long runs of
// equal keys, and long runs make whole 32-byte sectors when they are written.
template <int kRows>
struct Shared {
  static constexpr unsigned kKeys = kThreads * kRows;
  static_assert(kKeys <= 65536, "an index within the tile has 16 bits");
  unsigned count[kWarps][kBins];  // of the warp's keys; then where in the tile they start
  unsigned bin_end[kBins];        // where the bin ends in the whole output
  unsigned to_global[kBins];      // from a place in the tile to one in the output
  unsigned warp_sum[kWarps], first_bin;
  // sorted[0] is 0, so that the first entry, too, has one before it that is no greater. Place p of
  // the tile is sorted[1 + p]. An entry is key << 16 | index in the tile.
  unsigned sorted[1 + kKeys];
};

// Exclusive scan over the bins. Thread t brings the value of bin t, threads without a bin bring 0.
// All threads of the block call it; it contains one barrier.
__device__ __forceinline__ unsigned scanBins(unsigned value, unsigned* s_warp_sum) {
  const unsigned warp = threadIdx.x / kLanes;
  unsigned upto = scanLanes(value);
  if (threadIdx.x % kLanes == kLanes - 1) s_warp_sum[warp] = upto;
  __syncthreads();
  for (unsigned k = 0; k < warp; ++k) upto += s_warp_sum[k];
  return upto - value;
}

// 3a. Load a thread's keys, one of each row: 1 byte per element, for the second and last time.
// `left` keys remain from the thread's first one on. A key that does not exist reads 255: it comes
// last in its tile and never gets a real key's place.
template <int kRows>
__device__ __forceinline__ void loadKeys(const unsigned char* g_first, int left,
                                         unsigned (&key)[kRows]) {
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    key[row] = row * kLanes < left ? g_first[row * kLanes] : kBins - 1;
  }
}

// 3b. Rank: how many equal keys come before this one in the warp's rows. atomicAdd on a counter of
// the warp's own returns just that, row after row: one instruction per 32 keys, where a rank built
// from ballots takes several for each of the eight bits. Two equal keys of ONE row may be served in
// any order; 3e finds that out. On return key[row] holds rank << 8 | key.
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

// 3e. Write the indices of a sorted tile, 4 bytes per element. Neighbors in the tile are neighbors
// in memory, so a warp writes 128 bytes at once wherever a bin has 32 keys. A tile is in stable
// order exactly when its entries ascend. Returns false where this thread saw one that does not.
template <int kRows>
__device__ __forceinline__ bool writeIndices(const Shared<kRows>& s, unsigned tile, unsigned keys,
                                             unsigned first, unsigned* g_index) {
  const bool full = keys == s.kKeys;
  bool ascends = true;
#pragma unroll 8  // independent loads hide each other's latency
  for (unsigned row = 0; row < kRows; ++row) {
    const unsigned place = first + row * kLanes;
    const unsigned entry = s.sorted[1 + place];
    ascends &= s.sorted[place] <= entry;
    if (full || place < keys) g_index[s.to_global[entry >> 16] + place] = tile + (entry & 0xffff);
  }
  return ascends;
}

// 3e, where needed: the repair. This is one round of odd-even transposition, a sort that only ever
// swaps neighbors. Equal keys of a row that were served out of order stand next to each other.
// There are at most 32 of them, and m neighbors are in order after m / 2 rounds: 16 rounds put
// every tile right.
template <int kRows>
__device__ void swapNeighbors(Shared<kRows>& s) {
  for (unsigned odd = 0; odd < 2; ++odd) {
    for (unsigned i = 2 * threadIdx.x + odd; i < s.kKeys; i += 2 * kThreads) {
      const unsigned a = s.sorted[i], b = s.sorted[i + 1];
      s.sorted[i] = min(a, b);
      s.sorted[i + 1] = max(a, b);
    }
    __syncthreads();
  }
}

// 3f. Write the sorted keys, 1 byte per element. They need no input at all: the totals say which
// runs to write. Fills places [begin, begin + keys) of g_sorted, 16 at a time where that is aligned
// and one bin fills them all.
// *bin is at most the bin of the thread's first place; places only go up, and so does it.
__device__ __forceinline__ void fillKeys(unsigned char* g_sorted, unsigned begin, unsigned keys,
                                         const unsigned* s_bin_end, unsigned* bin) {
  for (unsigned i = 16 * threadIdx.x; i < keys; i += 16 * kThreads) {
    const unsigned place = begin + i;
    unsigned char* g_out = g_sorted + place;
    while (place >= s_bin_end[*bin]) ++*bin;
    if (place + 16 <= s_bin_end[*bin] && reinterpret_cast<uintptr_t>(g_out) % 16 == 0) {
      const unsigned word = *bin * 0x01010101u;
      *reinterpret_cast<uint4*>(g_out) = make_uint4(word, word, word, word);
      continue;
    }
    unsigned b = *bin;
    for (unsigned k = 0; k < 16 && i + k < keys; ++k) {
      while (place + k >= s_bin_end[b]) ++b;
      g_out[k] = static_cast<unsigned char>(b);
    }
  }
}

// The whole of step 3, with 3c and 3d in its loop. Launch it with as many blocks as countChunks,
// kThreads threads and sizeof(Shared<kRows>) bytes of dynamic shared memory. g_before and g_totals
// are from scanChunks. *g_repairs grows by the number of tiles whose atomics were not served in
// lane order.
template <int kRows>
__global__ void __launch_bounds__(kThreads)
    sortChunks(const unsigned char* __restrict__ g_keys, unsigned n, unsigned chunk_keys,
               const unsigned* __restrict__ g_before, const unsigned* __restrict__ g_totals,
               unsigned char* __restrict__ g_sorted, unsigned* __restrict__ g_index,
               unsigned* g_repairs) {
  extern __shared__ unsigned s_memory[];
  Shared<kRows>& s = *reinterpret_cast<Shared<kRows>*>(s_memory);
  const unsigned lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const unsigned bin = threadIdx.x % kBins;
  const bool owns_bin = threadIdx.x < kBins;
  const unsigned begin = min(blockIdx.x * chunk_keys, n), end = min(begin + chunk_keys, n);

  const unsigned first = warp * kRows * kLanes + lane;  // this thread's key in the warp's row 0
  unsigned key[kRows];
  loadKeys(g_keys + begin + first, static_cast<int>(end - begin) - static_cast<int>(first), key);
  for (unsigned k = lane; k < kBins; k += kLanes) s.count[warp][k] = 0;
  if (threadIdx.x == 0) s.sorted[0] = 0;

  const unsigned total = owns_bin ? g_totals[bin] : 0;
  const unsigned bin_begin = scanBins(total, s.warp_sum);
  // Where this chunk's next key of the bin goes.
  unsigned next = bin_begin + g_before[bin * gridDim.x + blockIdx.x];
  if (owns_bin) {
    s.bin_end[bin] = bin_begin + total;
    if (bin_begin <= begin && begin < bin_begin + total) s.first_bin = bin;
  }
  __syncthreads();
  unsigned fill_bin = s.first_bin;

  for (unsigned tile = begin; tile < end; tile += s.kKeys) {
    const unsigned keys = min(s.kKeys, end - tile);
    rankInWarp(key, s.count[warp]);
    __syncthreads();

    // 3c. Scan over (bin, warp): where in the tile the keys of each bin and warp start.
    unsigned in_tile = 0;
    if (owns_bin) {
#pragma unroll
      for (int w = 0; w < kWarps; ++w) in_tile += s.count[w][bin];
    }
    unsigned start = scanBins(in_tile, s.warp_sum);
    if (owns_bin) {
      s.to_global[bin] = next - start;
      next += in_tile;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const unsigned count = s.count[w][bin];
        s.count[w][bin] = start;
        start += count;
      }
    }
    __syncthreads();

    // 3d. Place: start of the warp's keys of this bin, plus the rank among them. It all stays in
    // shared memory, where scattered writes are cheap.
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const unsigned own = key[row] & 0xff;
      s.sorted[1 + s.count[warp][own] + (key[row] >> 8)] = own << 16 | (first + row * kLanes);
    }
    // The registers are free now: fetch the next tile while this one is written.
    const unsigned ahead = tile + s.kKeys;
    if (ahead < end) {
      loadKeys(g_keys + ahead + first, static_cast<int>(end - ahead) - static_cast<int>(first),
               key);
    }
    __syncthreads();

    for (unsigned k = lane; k < kBins; k += kLanes) s.count[warp][k] = 0;
    // The indices are on their way before the whole block knows whether the order is right. If it
    // is not, they are written again. __syncthreads_or is a barrier and asks all threads at once.
    bool repaired = false;
    while (__syncthreads_or(!writeIndices(s, tile, keys, first, g_index))) {
      swapNeighbors(s);
      repaired = true;
    }
    if (repaired && threadIdx.x == 0) atomicAdd(g_repairs, 1u);
    fillKeys(g_sorted, tile, keys, s.bin_end, &fill_bin);
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

unsigned ceilDiv(unsigned a, unsigned b) {
  return a / b + (a % b != 0);
}

// A sort and its workspace, made once and used for any number of inputs.
template <int kRows>
class CountingSort {
 public:
  static constexpr unsigned kTile = Shared<kRows>::kKeys;

  explicit CountingSort(const cudaDeviceProp& device)
      : most_chunks_(SORT_CHUNKS > 0 ? SORT_CHUNKS : device.multiProcessorCount),
        counts_(kBins * most_chunks_),
        totals_(kBins),
        repairs_(1) {
    CUDA_CHECK(cudaMemset(repairs_.data, 0, sizeof(unsigned)));
    CUDA_CHECK(cudaFuncSetAttribute(sortChunks<kRows>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    sizeof(Shared<kRows>)));
  }

  // Sorts n < 2^31 keys. d_sorted receives them in order, d_index the original place of each. Any
  // alignment of d_keys and d_sorted. Asynchronous, like any launch.
  void operator()(const unsigned char* d_keys, unsigned n, unsigned char* d_sorted,
                  unsigned* d_index) {
    if (n == 0) return;  // A grid of zero blocks is not a valid launch.
    // One chunk for each multiprocessor, in whole 16-byte vectors, but not so few keys that a block
    // is started for nothing.
    const unsigned chunk_keys = std::max(ceilDiv(ceilDiv(n, most_chunks_), 16) * 16, 1024u);
    const unsigned chunks = ceilDiv(n, chunk_keys);
    countChunks<<<chunks, 1024>>>(d_keys, n, chunk_keys, counts_.data);
    CUDA_CHECK(cudaGetLastError());
    scanChunks<<<kBins * kLanes / 256, 256>>>(counts_.data, chunks, totals_.data);
    CUDA_CHECK(cudaGetLastError());
    sortChunks<kRows><<<chunks, kThreads, sizeof(Shared<kRows>)>>>(
        d_keys, n, chunk_keys, counts_.data, totals_.data, d_sorted, d_index, repairs_.data);
    CUDA_CHECK(cudaGetLastError());
  }

  // The number of keys with which every block has exactly one whole tile.
  unsigned oneTileEach() const { return most_chunks_ * kTile; }

  // How many tiles, in all sorts so far, had to be put in order after their ranking.
  unsigned repairs() const {
    unsigned count = 0;
    CUDA_CHECK(cudaMemcpy(&count, repairs_.data, sizeof(count), cudaMemcpyDeviceToHost));
    return count;
  }

 private:
  unsigned most_chunks_;
  DeviceArray<unsigned> counts_, totals_, repairs_;
};

// ---- Inputs and the check ----------------------------------------------------------------------

enum Input { uniform, text, one_byte, sorted, reversed, two_values, rare_value, kInputs };
constexpr const char* kInputNames[] = {"uniform bytes", "english text", "all one byte",  "sorted",
                                       "reversed",      "two values",   "one rare value"};
__constant__ const char kText[] =
    "A stable sort keeps equal keys in the order in which they came. One thread gets that for "
    "free, because it takes the keys one after another. Thousands have to count before they move "
    "a key, and give it the place that is its own.\n";

// Makes every key from its position alone. Any grid and block. The multipliers are those of
// splitmix64 (Steele, Lea, Flood 2014).
__global__ void makeKeys(unsigned char* g_keys, unsigned n, int input) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    uint64_t mixed = (i + 1) * 0x9E3779B97F4A7C15ull;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9ull;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBull;
    const unsigned ramp = static_cast<unsigned>(uint64_t{i} * kBins / n);
    unsigned key = 'e';
    if (input == uniform) key = mixed >> 56;
    if (input == text) key = kText[i % (sizeof(kText) - 1)];
    if (input == sorted) key = ramp;
    if (input == reversed) key = kBins - 1 - ramp;
    if (input == two_values) key = mixed >> 63 ? 'a' : 'q';
    if (input == rare_value) key = i == n / 3 ? 0 : 255;
    g_keys[i] = static_cast<unsigned char>(key);
  }
}

// Adds to *g_wrong the places at which (sorted, index) is not the stable sort of the keys. Every
// place must show an element of the input with its own key, and the pairs (key, index) must ascend
// strictly: n different elements in ascending order are all n, in the only stable order there is.
__global__ void countWrong(const unsigned char* g_keys, const unsigned char* g_sorted,
                           const unsigned* g_index, unsigned n, unsigned* g_wrong) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const unsigned key = g_sorted[i], index = g_index[i];
    const bool follows =
        i == 0 || g_sorted[i - 1] < key || (g_sorted[i - 1] == key && g_index[i - 1] < index);
    if (index >= n || g_keys[index] != key || !follows) atomicAdd(g_wrong, 1u);
  }
}

// The keys, what a sort makes of them, and the judge.
struct Bench {
  explicit Bench(size_t n) : keys(n + 16), sorted(n + 16), index(n), wrong(1) {}

  void make(unsigned n, int input, unsigned offset = 0) {
    makeKeys<<<1024, 256>>>(keys.data + offset, n, input);
    CUDA_CHECK(cudaGetLastError());
  }

  // No index can be 0xffffffff: what a sort does not write is found wrong.
  void poison(unsigned n) {
    CUDA_CHECK(cudaMemset(sorted.data, 0xff, n + 16));
    CUDA_CHECK(cudaMemset(index.data, 0xff, n * sizeof(unsigned)));
  }

  // Ends the program with status 1 unless the outputs are the stable order of the keys.
  void requireStable(const char* who, unsigned n, unsigned offset = 0) {
    unsigned count = 0;
    CUDA_CHECK(cudaMemset(wrong.data, 0, sizeof(count)));
    countWrong<<<1024, 256>>>(keys.data + offset, sorted.data + offset, index.data, n, wrong.data);
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaMemcpy(&count, wrong.data, sizeof(count), cudaMemcpyDeviceToHost));
    if (count == 0) return;
    std::fprintf(stderr, "MISMATCH: %s, %u keys: %u places are wrong\n", who, n, count);
    std::exit(1);
  }

  DeviceArray<unsigned char> keys, sorted;
  DeviceArray<unsigned> index, wrong;
};

template <class Sort>
void sortAndCheck(Sort& sort, Bench& bench, unsigned n, int input, unsigned offset = 0) {
  bench.make(n, input, offset);
  bench.poison(n);
  sort(bench.keys.data + offset, n, bench.sorted.data + offset, bench.index.data);
  bench.requireStable(kInputNames[input], n, offset);
}

// Every input with one key less than whole tiles, with whole tiles, and with a second tile in each
// block; the large sizes, where a block has many; every alignment; and repeated runs.
template <class Sort>
void checkAll(Sort& sort, Bench& bench, unsigned largest) {
  const unsigned tiles = sort.oneTileEach();
  for (unsigned n : {0u, 1u, 31u, 257u, tiles - 1, tiles, tiles + 1, SORT_KEYS + 611u, largest}) {
    for (int input = 0; input < kInputs; ++input) sortAndCheck(sort, bench, n, input, n % 16);
  }
  for (unsigned offset = 0; offset < 16; ++offset) {
    sortAndCheck(sort, bench, 3991, uniform, offset);
  }
  for (int run = 0; run < SORT_RUNS; ++run) sortAndCheck(sort, bench, SORT_KEYS, text);
}

// ---- Timing and main ---------------------------------------------------------------------------

// Median time of one launch() in milliseconds, after warm-ups, each run between a pair of events.
template <class Launch>
float medianMs(Launch launch) {
  cudaEvent_t start, stop;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&stop));
  for (int run = 0; run < 3; ++run) launch();
  std::vector<float> ms(SORT_TIMED_RUNS);
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
  std::nth_element(ms.begin(), ms.begin() + SORT_TIMED_RUNS / 2, ms.end());
  return ms[SORT_TIMED_RUNS / 2];
}

// One line of the table. Times CUB and ours on the same keys, one right after the other, and checks
// what the timed runs left.
template <class Sort>
void measure(Sort& sort, Bench& bench, unsigned n, int input, const unsigned* d_identity) {
  bench.make(n, input);
  size_t bytes = 0;
  const auto sortPairs = [&](void* d_temporary) {
    CUDA_CHECK(cub::DeviceRadixSort::SortPairs(d_temporary, bytes, bench.keys.data,
                                               bench.sorted.data, d_identity, bench.index.data, n));
  };
  sortPairs(nullptr);  // asks for the size only
  const DeviceArray<unsigned char> temporary(bytes);
  bench.poison(n);
  const float cub_ms = medianMs([&] { sortPairs(temporary.data); });
  bench.requireStable("CUB", n);
  bench.poison(n);
  const float ours_ms =
      medianMs([&] { sort(bench.keys.data, n, bench.sorted.data, bench.index.data); });
  bench.requireStable("after timing", n);
  std::printf("%12u  %-15s%12.4f%12.4f%9.2f\n", n, kInputNames[input], cub_ms, ours_ms,
              cub_ms / ours_ms);
}

template <int kRows>
void lesson(const cudaDeviceProp& device) {
  size_t free_bytes = 0, all_bytes = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_bytes, &all_bytes));
  const bool huge = free_bytes / 8 > SORT_HUGE_KEYS;  // 6 bytes a key, and some to spare
  CountingSort<kRows> sort(device);
  CountingSort<kSmallRows> small(device);
  const unsigned largest =
      std::max({SORT_KEYS + 611u, sort.oneTileEach() + 1, huge ? SORT_HUGE_KEYS : 0u});
  Bench bench(largest);
  checkAll(sort, bench, largest);
  checkAll(small, bench, largest);

  std::printf("=== Section 7.6: a stable counting sort at speed ===\n\n");
  std::printf("GPU: %s, compute capability %d.%d\n", device.name, device.major, device.minor);
  std::printf("tiles of %u keys; those of %u for smaller cards were checked too\n\n", sort.kTile,
              small.kTile);
  std::printf("right and stable: every input at the edges of tiles and of %u keys, 16 alignments\n",
              largest);
  std::printf("right and stable: %u keys of english text, %d runs\n\n", SORT_KEYS, SORT_RUNS);
  std::printf("%12s  %-15s%12s%12s%9s\n", "keys", "input", "CUB (ms)", "ours (ms)", "ratio");
  std::vector<unsigned> h_identity(SORT_KEYS);
  std::iota(h_identity.begin(), h_identity.end(), 0u);
  const DeviceArray<unsigned> identity(SORT_KEYS);
  CUDA_CHECK(cudaMemcpy(identity.data, h_identity.data(), SORT_KEYS * sizeof(unsigned),
                        cudaMemcpyHostToDevice));
  for (unsigned parts : {4096, 512, 64, 1}) {
    for (int input : {uniform, text, one_byte}) {
      measure(sort, bench, SORT_KEYS / parts, input, identity.data);
    }
  }
  for (int input : {sorted, two_values}) measure(sort, bench, SORT_KEYS, input, identity.data);
  std::printf("\nmedian of %d runs each; ratio is CUB's time over ours: above 1, ours is faster\n",
              SORT_TIMED_RUNS);
  std::printf("tiles put in order after their ranking: %u\n\n", sort.repairs() + small.repairs());
  std::printf("self-check: every output is the stable order of its input: confirmed\n");
}

int main() {
  cudaDeviceProp device;
  const char* why = nullptr;
  if (!findDevice(&device, &why)) {
    std::fprintf(stderr, "no device to sort on: %s\n", why);
    return 77;
  }
  if (sizeof(Shared<kBigRows>) <= device.sharedMemPerBlockOptin) {
    lesson<kBigRows>(device);
  } else {
    lesson<kSmallRows>(device);
  }
  return 0;
}
