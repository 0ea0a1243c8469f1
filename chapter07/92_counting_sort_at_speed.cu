// SPDX-License-Identifier: MIT
//
// 7.6  A stable counting sort at speed
//
// Lesson 91 made fast: byte keys in; the keys in order and each one's original index out. At least
// seven bytes move for each element: its key is read twice (count, then place), its index (4) and
// its key (1) are written. A block sorts a piece of the input, a tile, in shared memory. There an
// atomicAdd numbers equal keys. Nobody promises its order, so each tile is checked while it is
// written, and put right if need be. The table shows CUB, the toolkit's library, beside it. CUB
// picks its tuning by -arch, so name your own card's there.
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
#define SORT_KEYS (64u << 20)  // timed are these and 1/64, 1/512, 1/4096; checked 4 times as many
#endif
#ifndef SORT_RUNS
#define SORT_RUNS 100  // timed runs, each checked; their median counts
#endif

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kBins = 256;  // one per byte value
constexpr int kLanes = 32, kWarps = 10, kThreads = kWarps * kLanes;
// A tile is what a block sorts at once. Each warp has kRows rows of it; a row is 32 keys side by
// side, one for each lane. Large tiles make long runs of one bin, which fill whole sectors.
constexpr int kRows = 40, kTile = kThreads * kRows;
static_assert(SORT_KEYS >= 4096 && SORT_KEYS < 1u << 29 && SORT_RUNS > 0, "not that few or many");

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

// Step 1, count: reads 1 byte per element. Every block owns one chunk, here and in step 2.
// g_counts[chunk * kBins + bin] receives how many keys of the chunk fall into the bin. Launch one
// block of any size for each chunk. chunk_keys is a multiple of 16.
__global__ void countChunks(const unsigned char* __restrict__ g_keys, unsigned n,
                            unsigned chunk_keys, unsigned* g_counts) {
  // A column per lane: bin b's counter for lane l is in bank l, so no two lanes of a warp collide.
  __shared__ unsigned s_count[kBins * kLanes];
  for (int i = threadIdx.x; i < kBins * kLanes; i += blockDim.x) s_count[i] = 0;
  __syncthreads();

  unsigned* const s_column = s_count + threadIdx.x % kLanes;
  const unsigned begin = min(blockIdx.x * chunk_keys, n), keys = min(chunk_keys, n - begin);
  const unsigned char* g_chunk = g_keys + begin;
  // 16-byte loads need a 16-byte boundary. Without one, and at the end, bytes are read one by one.
  const unsigned vectors = reinterpret_cast<uintptr_t>(g_chunk) % 16 == 0 ? keys / 16 : 0;
  for (unsigned i = threadIdx.x; i < vectors; i += blockDim.x) {
    const uint4 v = reinterpret_cast<const uint4*>(g_chunk)[i];
    for (unsigned word : {v.x, v.y, v.z, v.w}) {
      for (int k = 0; k < 32; k += 8) atomicAdd(s_column + (word >> k & 0xff) * kLanes, 1u);
    }
  }
  for (unsigned i = vectors * 16 + threadIdx.x; i < keys; i += blockDim.x) {
    atomicAdd(s_column + g_chunk[i] * kLanes, 1u);
  }
  __syncthreads();

  for (unsigned bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
    unsigned sum = 0;
    // Start at another lane in every thread, or all 32 would read the same bank.
    for (unsigned k = 0; k < kLanes; ++k) sum += s_count[bin * kLanes + (k + bin) % kLanes];
    g_counts[blockIdx.x * kBins + bin] = sum;
  }
}

// Step 2, place. A block loads its first tile (2a) and writes the sorted keys (2b). Then tile by
// tile it ranks the keys (2c), scans the counts (2d), places the keys in shared memory (2e) and
// writes the indices (2f). Shared memory holds this, within the 64 KiB of any card since sm_75:
struct Shared {
  unsigned count[kWarps][kBins];  // of the warp's keys; then where in the tile they start
  unsigned bin_end[kBins];        // where the bin ends in the whole output
  unsigned to_global[kBins];      // from a place in the tile to one in the output
  unsigned warp_sum[kWarps];
  unsigned sorted[1 + kTile];  // a 0; then for each key an entry, key << 16 | index in the tile
};
static_assert(sizeof(Shared) <= 65536 && kTile <= 65536 && kThreads >= kBins, "it must fit");

// Exclusive scan over the bins. Thread t brings the value of bin t, threads without a bin bring 0.
// All threads of the block call it; it contains one barrier.
__device__ unsigned scanBins(unsigned value, unsigned* s_warp_sum) {
  const unsigned lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  unsigned upto = value;
  for (unsigned step = 1; step < kLanes; step *= 2) {
    const unsigned left = __shfl_up_sync(kAllLanes, upto, step);
    if (lane >= step) upto += left;
  }
  if (lane == kLanes - 1) s_warp_sum[warp] = upto;
  __syncthreads();
  for (unsigned w = 0; w < warp; ++w) upto += s_warp_sum[w];
  return upto - value;
}

// 2b. Write the sorted keys, 1 byte per element. They need no input at all: the counts say which
// runs to write. Fills g_sorted[begin, end), 16 at once where that is aligned and all one bin's.
__device__ void fillKeys(const Shared& s, unsigned begin, unsigned end, unsigned char* g_sorted) {
  for (unsigned first = begin + 16 * threadIdx.x; first < end; first += 16 * kThreads) {
    unsigned bin = 0;  // the one that holds the place `first`, by binary search
    for (int step = kBins / 2; step > 0; step /= 2) {
      if (s.bin_end[bin + step - 1] <= first) bin += step;
    }
    if (first + 16 <= s.bin_end[bin] && reinterpret_cast<uintptr_t>(g_sorted + first) % 16 == 0) {
      const unsigned word = bin * 0x01010101u;
      *reinterpret_cast<uint4*>(g_sorted + first) = make_uint4(word, word, word, word);
      continue;
    }
    for (unsigned place = first; place < min(first + 16, end); ++place) {
      while (s.bin_end[bin] <= place) ++bin;
      g_sorted[place] = static_cast<unsigned char>(bin);
    }
  }
}

// 2c. Rank: how many equal keys come before this one in the warp's rows. atomicAdd on a counter of
// the warp's own returns just that, row after row: one instruction per 32 keys, where a rank built
// from ballots takes several for each of the eight bits. Two equal keys of ONE row may be served in
// any order; 2f finds that out. On return key[row] holds rank << 8 | key.
__device__ void rankInWarp(unsigned (&key)[kRows], unsigned* s_count) {
  const unsigned lane = threadIdx.x % kLanes;
  // With one value only, 32 lanes would queue at one counter. There the position is the rank.
  unsigned differs = key[0] ^ __shfl_sync(kAllLanes, key[0], 0);
  for (int row = 1; row < kRows; ++row) differs |= key[row] ^ key[0];
  if (__all_sync(kAllLanes, differs == 0)) {
    if (lane == 0) s_count[key[0]] = kRows * kLanes;
    for (int row = 0; row < kRows; ++row) key[row] |= (row * kLanes + lane) << 8;
    return;
  }
  for (int row = 0; row < kRows; ++row) {
    key[row] |= atomicAdd(&s_count[key[row]], 1u) << 8;
    __syncwarp();  // A row is counted before the next one starts.
  }
}

// 2f. Write the indices of a sorted tile, 4 bytes per element. Neighbors of one bin are neighbors
// in memory, so a warp writes few sectors where runs are long. A tile is in stable order exactly
// when its entries ascend. Returns false where this thread saw one that does not.
__device__ bool writeIndices(const Shared& s, unsigned first, unsigned tile, unsigned keys,
                             unsigned* g_index) {
  const bool full = keys == kTile;  // then no place is tested
  bool ascends = true;
#pragma unroll 8  // independent loads hide each other's latency
  for (unsigned row = 0; row < kRows; ++row) {
    const unsigned place = first + row * kLanes, entry = s.sorted[1 + place];
    ascends &= s.sorted[place] <= entry;
    if (full || place < keys) g_index[s.to_global[entry >> 16] + place] = tile + (entry & 0xffff);
  }
  return ascends;
}

// 2f, where needed: the repair. Sorts the `keys` entries of one bin by insertion. Each has at most
// 31 others to pass: only equal keys of one row can have been served out of order.
__device__ void repairBin(unsigned* s_entry, unsigned keys) {
  for (unsigned i = 1; i < keys; ++i) {
    const unsigned entry = s_entry[i];
    unsigned k = i;
    for (; k > 0 && s_entry[k - 1] > entry; --k) s_entry[k] = s_entry[k - 1];
    s_entry[k] = entry;
  }
}

__device__ unsigned g_repairs;  // how many tiles needed it, in all sorts so far

// The whole of step 2. Launch a block of kThreads threads for each chunk, with sizeof(Shared) bytes
// of dynamic shared memory. g_counts is from countChunks. An H200's multiprocessor runs two blocks.
__global__ void __launch_bounds__(kThreads, 2)
    sortChunks(const unsigned char* __restrict__ g_keys, unsigned n, unsigned chunk_keys,
               const unsigned* __restrict__ g_counts, unsigned char* __restrict__ g_sorted,
               unsigned* __restrict__ g_index) {
  extern __shared__ unsigned s_memory[];
  Shared& s = *reinterpret_cast<Shared*>(s_memory);
  const unsigned lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const unsigned bin = threadIdx.x % kBins;
  const bool owns_bin = threadIdx.x < kBins;
  const unsigned begin = min(blockIdx.x * chunk_keys, n), end = min(begin + chunk_keys, n);
  const unsigned first = warp * kRows * kLanes + lane;  // this thread's key in the warp's row 0

  // 2a. Load one key of each row, 1 byte per element, for the second and last time. A key that does
  // not exist reads 255: it comes last in its tile and never takes a real key's place.
  unsigned key[kRows];
  const auto load = [&](unsigned tile) {
    const unsigned char* g_first = g_keys + tile + first;
    const int left = static_cast<int>(end - tile - first);
    for (int row = 0; row < kRows; ++row) {
      key[row] = row * kLanes < left ? g_first[row * kLanes] : kBins - 1;
    }
  };
  load(begin);
  for (unsigned k = lane; k < kBins; k += kLanes) s.count[warp][k] = 0;
  if (threadIdx.x == 0) s.sorted[0] = 0;

  // How many keys of this bin there are in all chunks, and in those before this one.
  unsigned total = 0, next = 0;
#pragma unroll 16  // so that many loads are in flight
  for (unsigned chunk = 0; chunk < gridDim.x; ++chunk) {
    const unsigned count = owns_bin ? g_counts[chunk * kBins + bin] : 0;
    total += count;
    if (chunk < blockIdx.x) next += count;
  }
  const unsigned bin_begin = scanBins(total, s.warp_sum);
  if (owns_bin) s.bin_end[bin] = bin_begin + total;
  next += bin_begin;  // where this chunk's next key of the bin goes
  __syncthreads();
  fillKeys(s, begin, end, g_sorted);

  for (unsigned tile = begin; tile < end; tile += kTile) {
    rankInWarp(key, s.count[warp]);
    __syncthreads();

    // 2d. Scan over (bin, warp): where in the tile the keys of each bin and warp start.
    unsigned in_tile = 0;
    for (int w = 0; w < kWarps; ++w) in_tile += owns_bin ? s.count[w][bin] : 0;
    const unsigned start = scanBins(in_tile, s.warp_sum);
    if (owns_bin) {
      s.to_global[bin] = next - start;
      next += in_tile;
      for (unsigned w = 0, upto = start; w < kWarps; ++w) {
        const unsigned count = s.count[w][bin];
        s.count[w][bin] = upto;
        upto += count;
      }
    }
    __syncthreads();

    // 2e. Place: add the start to the rank. The reads come first, since none may pass a write.
    for (int row = 0; row < kRows; ++row) key[row] += s.count[warp][key[row] & 0xff] << 8;
    for (int row = 0; row < kRows; ++row) {
      s.sorted[1 + (key[row] >> 8)] = (key[row] & 0xff) << 16 | (first + row * kLanes);
    }
    // The registers are free now: fetch the next tile, if any, while this one is written.
    const unsigned keys = min(end - tile, kTile);
    if (keys < end - tile) load(tile + kTile);
    __syncthreads();

    for (unsigned k = lane; k < kBins; k += kLanes) s.count[warp][k] = 0;
    // The indices are on their way before the whole block knows whether the order is right. If it
    // is not, they are written again. __syncthreads_or is a barrier and asks all threads at once.
    if (__syncthreads_or(!writeIndices(s, first, tile, keys, g_index))) {
      if (owns_bin) repairBin(s.sorted + 1 + start, in_tile);
      if (threadIdx.x == 0) atomicAdd(&g_repairs, 1u);
      __syncthreads();
      writeIndices(s, first, tile, keys, g_index);
    }
  }
}

// Sorts n < 2^31 keys. d_sorted receives them in order, d_index the original place of each. None of
// the arrays overlap; bytes may begin anywhere. d_counts has room for chunks * kBins counts. Best
// are as many chunks as blocks run at once. Asynchronous, like any launch.
void countingSort(const unsigned char* d_keys, unsigned n, unsigned char* d_sorted,
                  unsigned* d_index, unsigned chunks, unsigned* d_counts) {
  static const cudaError_t allowed =
      cudaFuncSetAttribute(sortChunks, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  CUDA_CHECK(allowed);
  if (n == 0) return;  // A grid of zero blocks is not a valid launch.
  // Whole 16-byte vectors, and no less than a tile: a block is not started for a few keys.
  const unsigned chunk_keys = std::max(((n - 1) / chunks / 16 + 1) * 16, 1u * kTile);
  const unsigned blocks = (n - 1) / chunk_keys + 1;
  countChunks<<<blocks, 1024>>>(d_keys, n, chunk_keys, d_counts);
  CUDA_CHECK(cudaGetLastError());
  sortChunks<<<blocks, kThreads, sizeof(Shared)>>>(d_keys, n, chunk_keys, d_counts, d_sorted,
                                                   d_index);
  CUDA_CHECK(cudaGetLastError());
}

enum Input { uniform, text, one_byte, sorted, two_values, reversed, rare_value, kInputs };
constexpr const char* kInputNames[] = {"uniform bytes", "english text", "all one byte",  "sorted",
                                       "two values",    "reversed",     "one rare value"};
__constant__ const char kText[] =
    "A stable sort keeps equal keys in the order in which they came: first come, first served.\n";

// Makes every key from its position alone, and the positions, which CUB takes as values. Any grid
// and block. The multipliers are those of splitmix64 (Steele, Lea, Flood 2014).
__global__ void makeKeys(unsigned char* g_keys, unsigned* g_position, unsigned n, int input) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    uint64_t mixed = (i + 1) * 0x9E3779B97F4A7C15ull;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9ull;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBull;
    const int random = static_cast<int>(mixed >> 56), letter = kText[i % (sizeof(kText) - 1)];
    const int ramp = static_cast<int>(uint64_t{i} * kBins / n), two = random < 128 ? 'a' : 'q';
    const int made[] = {random, letter, 'e', ramp, two, 255 - ramp, i == n / 3 ? 0 : 255};
    g_keys[i] = static_cast<unsigned char>(made[input]);
    g_position[i] = i;
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

template <class T>
struct DeviceArray {
  T* data = nullptr;
  explicit DeviceArray(size_t n) { CUDA_CHECK(cudaMalloc(&data, n * sizeof(T))); }
  ~DeviceArray() { cudaFree(data); }
  DeviceArray(const DeviceArray&) = delete;
};

int main() {
  cudaDeviceProp device;
  const char* why = nullptr;
  if (!findDevice(&device, &why)) {
    std::fprintf(stderr, "no device to sort on: %s\n", why);
    return 77;
  }
  size_t free_bytes = 0, all_bytes = 0, cub_bytes = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_bytes, &all_bytes));
  // A key takes 10 bytes here, so four times as many take 40, and CUB needs some too.
  const unsigned largest = free_bytes / 64 > SORT_KEYS ? 4 * SORT_KEYS : SORT_KEYS;
  const unsigned room = std::max(largest, 12u * kTile) + 1024;
  const unsigned chunks = 2 * device.multiProcessorCount;
  const DeviceArray<unsigned char> keys(room), sorted_keys(room);
  const DeviceArray<unsigned> position(room), index(room), wrong(1), counts(chunks * kBins);
  cudaEvent_t start, stop;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&stop));
  const auto ours = [&](auto... io) { countingSort(io..., chunks, counts.data); };
  const auto inTwo = [&](auto... io) { countingSort(io..., 2, counts.data); };

  // Median time of `runs` calls of sort(keys, n, sorted, index) in milliseconds. The program ends
  // unless every call leaves the stable order. Keys of different n begin at different alignments.
  const auto check = [&](int runs, unsigned n, int input, auto sort) {
    unsigned char *d_keys = keys.data + n % 16, *d_sorted = sorted_keys.data + n % 16;
    makeKeys<<<1024, 256>>>(d_keys, position.data, n, input);
    CUDA_CHECK(cudaGetLastError());
    std::vector<float> ms(runs);
    for (float& time : ms) {
      // So that unwritten places are found. Any byte can be a key, so each input has another.
      CUDA_CHECK(cudaMemset(index.data, 0xff, n * sizeof(unsigned)));
      CUDA_CHECK(cudaMemset(d_sorted, input, n));
      CUDA_CHECK(cudaMemset(wrong.data, 0, sizeof(unsigned)));
      CUDA_CHECK(cudaEventRecord(start));
      sort(d_keys, n, d_sorted, index.data);
      CUDA_CHECK(cudaEventRecord(stop));
      countWrong<<<1024, 256>>>(d_keys, d_sorted, index.data, n, wrong.data);
      CUDA_CHECK(cudaGetLastError());
      unsigned count = 0;
      CUDA_CHECK(cudaMemcpy(&count, wrong.data, sizeof(count), cudaMemcpyDeviceToHost));
      CUDA_CHECK(cudaEventElapsedTime(&time, start, stop));
      if (count == 0 && time > 0.0f) continue;
      std::fprintf(stderr, "MISMATCH: %s: %u of %u places are wrong, or %g ms cannot be true\n",
                   kInputNames[input], count, n, time);
      std::exit(1);
    }
    std::nth_element(ms.begin(), ms.begin() + runs / 2, ms.end());
    return ms[runs / 2];
  };

  const int pair = 2 * kTile;
  for (int input = 0; input < kInputs; ++input) {
    // One key; two chunks of a tile, the second with a key less, then full; with 2 and 7 tiles.
    for (unsigned n : {1, pair - 1, pair, pair + 1, 6 * pair + 1}) check(1, n, input, inTwo);
    for (unsigned n : {SORT_KEYS + 611u, largest}) check(1, n, input, ours);
  }
  for (unsigned n = 4000; n < 4016; ++n) check(1, n, uniform, ours);

  std::printf("=== Section 7.6: a stable counting sort at speed ===\n\n");
  std::printf("GPU: %s, compute capability %d.%d\n", device.name, device.major, device.minor);
  std::printf("right and stable: every input at the edges of tiles and of %u keys\n\n", largest);
  std::printf("        keys  input              CUB (ms)   ours (ms)    ratio\n");
  void* d_temporary = nullptr;
  const auto cubSort = [&](auto* d_keys, unsigned n, auto* d_sorted, auto* d_index) {
    CUDA_CHECK(cub::DeviceRadixSort::SortPairs(d_temporary, cub_bytes, d_keys, d_sorted,
                                               position.data, d_index, n));
  };
  cubSort(keys.data, SORT_KEYS, sorted_keys.data, index.data);  // only asks for the size
  CUDA_CHECK(cudaMalloc(&d_temporary, cub_bytes));
  for (unsigned n : {SORT_KEYS / 4096, SORT_KEYS / 512, SORT_KEYS / 64, SORT_KEYS}) {
    for (int input : {uniform, text, one_byte, sorted, two_values}) {
      const float cub = check(SORT_RUNS, n, input, cubSort), our = check(SORT_RUNS, n, input, ours);
      std::printf("%12u  %-15s%12.4f%12.4f%9.2f\n", n, kInputNames[input], cub, our, cub / our);
    }
  }
  CUDA_CHECK(cudaFree(d_temporary));
  CUDA_CHECK(cudaEventDestroy(start));
  CUDA_CHECK(cudaEventDestroy(stop));
  unsigned repairs = 0;
  CUDA_CHECK(cudaMemcpyFromSymbol(&repairs, g_repairs, sizeof(repairs)));
  std::printf("\nmedian of %d runs, each checked; above a ratio of 1 ours is faster\n", SORT_RUNS);
  std::printf("tiles put in order after their ranking: %u\n\n", repairs);
  std::printf("self-check: every output is the stable order of its input: confirmed\n");
  return 0;
}
