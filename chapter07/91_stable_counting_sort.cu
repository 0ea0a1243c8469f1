// SPDX-License-Identifier: MIT
//
// 7.5  A counting sort that is stable on a GPU
//
// Lesson 21's scatter hands out slots with atomicAdd. Which thread comes first is up to the
// hardware, so equal keys land in the right bucket in any order: sorted, but not stable. A radix
// sort sorts by the low digit first and relies on the next pass to keep that order, so it needs
// the stable pass below: count per block, scan over (bucket, block), rank inside the block by
// thread order. It is made to be read in one sitting; it is not the fast version.
//
// Build: nvcc -std=c++17 -O2 -arch=sm_75 91_stable_counting_sort.cu -o stable_counting_sort
// Run:   ./stable_counting_sort
// Stderr: device: {text}
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#ifndef SORT_MAX_N
#define SORT_MAX_N (1 << 24)  // the largest input; a CPU is content with less
#endif
#ifndef SORT_RUNS
#define SORT_RUNS 100  // repeated runs on the largest input, because one run proves little
#endif

constexpr int MAX_N = SORT_MAX_N;
constexpr int RUNS = SORT_RUNS;
constexpr int WARP_SIZE = 32;
constexpr int MAX_BLOCK = 1024;
constexpr int MAX_WARPS = MAX_BLOCK / WARP_SIZE;
constexpr int DIGIT_BITS = 8;
constexpr int NUM_BUCKETS = 1 << DIGIT_BITS;
constexpr int MAX_BLOCKS_IN_GRID = 1024;  // keeps the table of counts at 1 MiB, whatever n is
constexpr int N_OF_21 = 256;
constexpr int KEYS_OF_21 = 8;
constexpr int POISON_BYTE = 0xFF;  // outputs read -1 until they are written; no key and no index is

static_assert(MAX_N >= N_OF_21 && RUNS >= 1, "too little to show anything");
static_assert((MAX_WARPS + 1) * NUM_BUCKETS * sizeof(int) <= 48 * 1024, "shared memory of a block");

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

// ---- Data: a key travels with the place that it had in the input ------------------------------

// On the host: keys and indices side by side. Keys alone cannot show whether a sort is stable.
struct Pairs {
  std::vector<int> key, index;
};

// On the device, the same as two arrays.
struct DevicePairs {
  int* key = nullptr;
  int* index = nullptr;
};

__host__ __device__ inline int digit_of(int key, int shift) {
  return (key >> shift) & (NUM_BUCKETS - 1);
}

// A block owns one contiguous piece of the input, several block sizes long when n is large.
struct Piece {
  int begin, end;
};

__device__ Piece piece_of_block(int n) {
  const int tiles = (n + blockDim.x - 1) / blockDim.x;
  const int tiles_per_block = (tiles + gridDim.x - 1) / gridDim.x;
  // 64 bits: the last blocks' pieces may begin past n, and n may be close to 2^31.
  const long long begin = 1LL * blockIdx.x * tiles_per_block * blockDim.x;
  const long long end = begin + 1LL * tiles_per_block * blockDim.x;
  return {static_cast<int>(begin < n ? begin : n), static_cast<int>(end < n ? end : n)};
}

// ---- Lesson 21's pass: one histogram, one scan, slots by atomicAdd ----------------------------

__global__ void count_digits(const int* key, int n, int shift, int* hist) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&hist[digit_of(key[i], shift)], 1);
}

__global__ void scatter_by_atomic(DevicePairs in, int n, int shift, int* cursor, DevicePairs out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  // Of two threads with equal digits, the one that gets here first takes the lower slot.
  const int slot = atomicAdd(&cursor[digit_of(in.key[i], shift)], 1);
  out.key[slot] = in.key[i];
  out.index[slot] = in.index[i];
}

// ---- The stable pass, step 1: every block counts its own piece --------------------------------

// table[bucket * blocks + block]: read from the start, it visits all blocks of bucket 0, then all
// blocks of bucket 1. That is the order in which a stable output holds them.
__global__ void count_digits_per_block(const int* key, int n, int shift, int* table) {
  __shared__ int s_hist[NUM_BUCKETS];
  for (int b = threadIdx.x; b < NUM_BUCKETS; b += blockDim.x) s_hist[b] = 0;
  __syncthreads();
  const Piece piece = piece_of_block(n);
  for (int i = piece.begin + threadIdx.x; i < piece.end; i += blockDim.x) {
    atomicAdd(&s_hist[digit_of(key[i], shift)], 1);
  }
  __syncthreads();
  for (int b = threadIdx.x; b < NUM_BUCKETS; b += blockDim.x) {
    table[b * gridDim.x + blockIdx.x] = s_hist[b];
  }
}

// ---- Step 2: one exclusive scan turns all counts into starts, in place ------------------------

// One block walks over the table. Hillis-Steele in shared memory for blockDim.x entries at a time,
// as in lesson 21; `before` carries the sum of everything to the left.
__global__ void scan_exclusive(int* table, int length) {
  __shared__ int s_sum[MAX_BLOCK];
  int before = 0;
  for (int start = 0; start < length; start += blockDim.x) {
    const int i = start + threadIdx.x;
    const int own = i < length ? table[i] : 0;
    s_sum[threadIdx.x] = own;
    __syncthreads();
    for (int step = 1; step < static_cast<int>(blockDim.x); step *= 2) {
      const int left = static_cast<int>(threadIdx.x) >= step ? s_sum[threadIdx.x - step] : 0;
      __syncthreads();
      s_sum[threadIdx.x] += left;
      __syncthreads();
    }
    if (i < length) table[i] = before + s_sum[threadIdx.x] - own;
    before += s_sum[blockDim.x - 1];
    __syncthreads();  // Everyone has read the last sum before the next round overwrites it.
  }
}

// ---- Step 3: a slot for every element, by thread order and not by arrival ---------------------

// slot = where this block's elements of the bucket start
//      + elements of the same digit in lower warps of this tile
//      + elements of the same digit in lower lanes of this warp.
__global__ void scatter_stable(DevicePairs in, int n, int shift, const int* table,
                               DevicePairs out) {
  __shared__ int s_next[NUM_BUCKETS];                // the next free slot of this block
  __shared__ int s_in_warp[MAX_WARPS][NUM_BUCKETS];  // this tile's counts, one row a warp
  const int lane = threadIdx.x % WARP_SIZE;
  const int warp = threadIdx.x / WARP_SIZE;
  // The last warp of a block that is no multiple of 32 has fewer lanes to wait for.
  const int behind = static_cast<int>(blockDim.x) - warp * WARP_SIZE;
  const int lanes = behind < WARP_SIZE ? behind : WARP_SIZE;
  const unsigned all_lanes = lanes == WARP_SIZE ? ~0u : (1u << lanes) - 1;

  for (int b = threadIdx.x; b < NUM_BUCKETS; b += blockDim.x) {
    s_next[b] = table[b * gridDim.x + blockIdx.x];
    for (int w = 0; w < MAX_WARPS; ++w) s_in_warp[w][b] = 0;
  }
  __syncthreads();

  // All threads take part in every tile, because all of them meet at the barriers. A thread
  // without an element shows a digit that does not exist.
  const Piece piece = piece_of_block(n);
  for (int tile = piece.begin; tile < piece.end; tile += blockDim.x) {
    const int i = tile + threadIdx.x;
    const bool has_element = i < piece.end;
    const int digit = has_element ? digit_of(in.key[i], shift) : NUM_BUCKETS;

    const unsigned peers = __match_any_sync(all_lanes, digit);  // lanes with the same digit
    const int lower_lanes = __popc(peers & ((1u << lane) - 1));
    const bool leader = has_element && lower_lanes == 0;
    if (leader) s_in_warp[warp][digit] = __popc(peers);
    __syncthreads();

    if (has_element) {
      int slot = s_next[digit] + lower_lanes;
      for (int w = 0; w < warp; ++w) slot += s_in_warp[w][digit];
      out.key[slot] = in.key[i];
      out.index[slot] = in.index[i];
    }
    __syncthreads();

    // The tile is placed: move the cursors past it and wipe the counts. Sums do not depend on
    // the order of their terms, so atomicAdd does no harm here.
    if (leader) {
      atomicAdd(&s_next[digit], __popc(peers));
      s_in_warp[warp][digit] = 0;
    }
    __syncthreads();
  }
}

// ---- The judge, on the device too: 100 runs of 2^24 pairs need not travel ----------------------

struct Faults {
  int descents;    // neighbors whose digits, or keys after the last pass, go down
  int inversions;  // neighbors with equal digits whose original indices go down
  int wrong;       // pairs that are not the reference's pair at that place
};

__global__ void count_faults(DevicePairs out, DevicePairs reference, int n, int shift, int mask,
                             Faults* faults) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (out.key[i] != reference.key[i] || out.index[i] != reference.index[i]) {
    atomicAdd(&faults->wrong, 1);
  }
  if (i + 1 == n) return;
  const int here = (out.key[i] >> shift) & mask;
  const int next = (out.key[i + 1] >> shift) & mask;
  if (here > next) atomicAdd(&faults->descents, 1);
  if (here == next && out.index[i] > out.index[i + 1]) atomicAdd(&faults->inversions, 1);
}

// ---- The host side ----------------------------------------------------------------------------

// The reference: the standard library's stable sort of the indices by digit (or by key).
Pairs reference_sort(const std::vector<int>& key, int shift, int mask) {
  Pairs sorted;
  sorted.index.resize(key.size());
  for (size_t i = 0; i < key.size(); ++i) sorted.index[i] = static_cast<int>(i);
  std::stable_sort(sorted.index.begin(), sorted.index.end(), [&](int a, int b) {
    return ((key[a] >> shift) & mask) < ((key[b] >> shift) & mask);
  });
  for (int i : sorted.index) sorted.key.push_back(key[i]);
  return sorted;
}

// Everything that lives on the device, allocated once for the largest input.
struct Sorter {
  DevicePairs in, middle, out, reference;
  int* table = nullptr;  // also lesson 21's histogram and cursors
  Faults* faults = nullptr;

  Sorter() {
    for (DevicePairs* pairs : {&in, &middle, &out, &reference}) {
      CUDA_CHECK(cudaMalloc(&pairs->key, MAX_N * sizeof(int)));
      CUDA_CHECK(cudaMalloc(&pairs->index, MAX_N * sizeof(int)));
    }
    CUDA_CHECK(cudaMalloc(&table, MAX_BLOCKS_IN_GRID * NUM_BUCKETS * sizeof(int)));
    CUDA_CHECK(cudaMalloc(&faults, sizeof(Faults)));
  }
  ~Sorter() {
    for (DevicePairs* pairs : {&in, &middle, &out, &reference}) {
      cudaFree(pairs->key);
      cudaFree(pairs->index);
    }
    cudaFree(table);
    cudaFree(faults);
  }
  Sorter(const Sorter&) = delete;
  Sorter& operator=(const Sorter&) = delete;
};

int blocks_for(int n, int block_size) {
  return (n + block_size - 1) / block_size;
}

void upload(const Pairs& from, DevicePairs to) {
  const size_t bytes = from.key.size() * sizeof(int);
  CUDA_CHECK(cudaMemcpy(to.key, from.key.data(), bytes, cudaMemcpyHostToDevice));
  CUDA_CHECK(cudaMemcpy(to.index, from.index.data(), bytes, cudaMemcpyHostToDevice));
}

// The input with its indices 0, 1, 2 ..., and the stable order by (key >> shift) & mask.
void prepare(const Sorter& s, const std::vector<int>& key, int shift, int mask) {
  Pairs pairs{key, std::vector<int>(key.size())};
  for (size_t i = 0; i < key.size(); ++i) pairs.index[i] = static_cast<int>(i);
  upload(pairs, s.in);
  upload(reference_sort(key, shift, mask), s.reference);
}

void poison(DevicePairs pairs, int n) {
  CUDA_CHECK(cudaMemset(pairs.key, POISON_BYTE, n * sizeof(int)));
  CUDA_CHECK(cudaMemset(pairs.index, POISON_BYTE, n * sizeof(int)));
}

using Pass = void (*)(const Sorter& s, DevicePairs in, DevicePairs out, int n, int shift,
                      int block_size);

void atomic_pass(const Sorter& s, DevicePairs in, DevicePairs out, int n, int shift,
                 int block_size) {
  poison(out, n);
  if (n == 0) return;  // A grid of no blocks cannot be launched.
  CUDA_CHECK(cudaMemset(s.table, 0, NUM_BUCKETS * sizeof(int)));
  const int blocks = blocks_for(n, block_size);
  count_digits<<<blocks, block_size>>>(in.key, n, shift, s.table);
  CUDA_CHECK(cudaGetLastError());
  scan_exclusive<<<1, NUM_BUCKETS>>>(s.table, NUM_BUCKETS);
  CUDA_CHECK(cudaGetLastError());
  scatter_by_atomic<<<blocks, block_size>>>(in, n, shift, s.table, out);
  CUDA_CHECK(cudaGetLastError());
}

void stable_pass(const Sorter& s, DevicePairs in, DevicePairs out, int n, int shift,
                 int block_size) {
  poison(out, n);
  if (n == 0) return;
  const int blocks = std::min(blocks_for(n, block_size), MAX_BLOCKS_IN_GRID);
  CUDA_CHECK(cudaMemset(s.table, POISON_BYTE, blocks * NUM_BUCKETS * sizeof(int)));
  count_digits_per_block<<<blocks, block_size>>>(in.key, n, shift, s.table);
  CUDA_CHECK(cudaGetLastError());
  scan_exclusive<<<1, MAX_BLOCK>>>(s.table, blocks * NUM_BUCKETS);
  CUDA_CHECK(cudaGetLastError());
  scatter_stable<<<blocks, block_size>>>(in, n, shift, s.table, out);
  CUDA_CHECK(cudaGetLastError());
}

Faults judge(const Sorter& s, int n, int shift, int mask) {
  Faults faults = {0, 0, 0};
  if (n == 0) return faults;
  CUDA_CHECK(cudaMemset(s.faults, 0, sizeof(Faults)));
  count_faults<<<blocks_for(n, 256), 256>>>(s.out, s.reference, n, shift, mask, s.faults);
  CUDA_CHECK(cudaGetLastError());
  CUDA_CHECK(cudaMemcpy(&faults, s.faults, sizeof(Faults), cudaMemcpyDeviceToHost));
  return faults;
}

// 16-bit keys: the high half of a linear congruential generator's state.
std::vector<int> keys_of_16_bits(int n) {
  std::vector<int> key(n);
  unsigned state = 12345;
  for (int& k : key) {
    state = state * 1664525u + 1013904223u;
    k = static_cast<int>(state >> 16);
  }
  return key;
}

std::vector<int> keys_of_lesson_21(int n) {
  std::vector<int> key(n);
  for (int i = 0; i < n; ++i) key[i] = static_cast<int>((31LL * i + 17) % KEYS_OF_21);
  return key;
}

// How many pairs of neighbors have equal keys once the keys are sorted. Only these pairs can stand
// in the wrong order although the keys do not.
int equal_neighbors(std::vector<int> key) {
  std::sort(key.begin(), key.end());
  int pairs = 0;
  for (size_t i = 1; i < key.size(); ++i) pairs += key[i - 1] == key[i] ? 1 : 0;
  return pairs;
}

// ---- The four parts of the lesson --------------------------------------------------------------

// Lesson 21's scatter on lesson 21's input. Returns in how many of 20 runs the order was lost.
int show_inversions(const Sorter& s, bool* sorted) {
  constexpr int SHOWN_RUNS = 20;
  const std::vector<int> key = keys_of_lesson_21(N_OF_21);
  prepare(s, key, 0, NUM_BUCKETS - 1);
  std::vector<int> inversions;
  int descents = 0, unstable = 0;
  for (int run = 0; run < SHOWN_RUNS; ++run) {
    atomic_pass(s, s.in, s.out, N_OF_21, 0, N_OF_21);
    const Faults faults = judge(s, N_OF_21, 0, NUM_BUCKETS - 1);
    descents += faults.descents;
    unstable += faults.wrong > 0 ? 1 : 0;
    inversions.push_back(faults.inversions);
  }
  std::sort(inversions.begin(), inversions.end());
  std::printf("lesson 21's scatter, N = %d, %d keys, %d runs on this device\n", N_OF_21, KEYS_OF_21,
              SHOWN_RUNS);
  std::printf("  sorted by key: %s\n", descents == 0 ? "in every run" : "NO");
  std::printf("  pairs of neighbors with equal keys: %d\n", equal_neighbors(key));
  std::printf("  of these in the wrong order: min %d, median %d, max %d\n\n", inversions.front(),
              inversions[SHOWN_RUNS / 2], inversions.back());
  *sorted = descents == 0;
  return unstable;
}

// The stable pass for many n and block sizes, with few keys (many ties) and with many.
bool check_stable_pass(const Sorter& s) {
  const int block_sizes[] = {32, 96, 100, 256, 1000, 1024};
  std::vector<int> sizes = {0, 1, 2, 31, 32, 33, 255, 256, 257, 1000, 4095, 4097, 65537, 1 << 20};
  sizes.erase(std::remove_if(sizes.begin(), sizes.end(), [](int n) { return n >= MAX_N; }),
              sizes.end());
  sizes.push_back(MAX_N);
  std::vector<Faults> sums(std::size(block_sizes), Faults{0, 0, 0});
  for (int n : sizes) {
    for (const std::vector<int>& key : {keys_of_lesson_21(n), keys_of_16_bits(n)}) {
      prepare(s, key, 0, NUM_BUCKETS - 1);
      for (size_t b = 0; b < std::size(block_sizes); ++b) {
        stable_pass(s, s.in, s.out, n, 0, block_sizes[b]);
        const Faults faults = judge(s, n, 0, NUM_BUCKETS - 1);
        sums[b].inversions += faults.inversions;
        sums[b].wrong += faults.wrong;
      }
    }
  }
  std::printf("the stable pass, n from %d to %d\n", sizes.front(), sizes.back());
  std::printf("  block size   inversions   wrong pairs\n");
  bool correct = true;
  for (size_t b = 0; b < std::size(block_sizes); ++b) {
    std::printf("%12d%13d%14d\n", block_sizes[b], sums[b].inversions, sums[b].wrong);
    correct = correct && sums[b].inversions == 0 && sums[b].wrong == 0;
  }
  return correct;
}

// The same input again and again: a race may hide in one run, and hardly in a hundred.
bool repeat_stable_pass(const Sorter& s) {
  prepare(s, keys_of_lesson_21(MAX_N), 0, NUM_BUCKETS - 1);
  int stable = 0;
  for (int run = 0; run < RUNS; ++run) {
    stable_pass(s, s.in, s.out, MAX_N, 0, 256);
    const Faults faults = judge(s, MAX_N, 0, NUM_BUCKETS - 1);
    stable += faults.inversions == 0 && faults.wrong == 0 ? 1 : 0;
  }
  std::printf("  n = %d, blocks of 256: stable in %d of %d runs\n\n", MAX_N, stable, RUNS);
  return stable == RUNS;
}

// Radix sort of 16-bit keys, least significant digit first: by bits 0 to 7, then by bits 8 to 15.
// Keys that agree in the high digit stay in the order of the low one if the second pass is stable.
Faults radix_sort(const Sorter& s, Pass pass, int n) {
  pass(s, s.in, s.middle, n, 0, 256);
  pass(s, s.middle, s.out, n, DIGIT_BITS, 256);
  return judge(s, n, 0, (1 << 2 * DIGIT_BITS) - 1);
}

int main() {
  cudaDeviceProp device;
  const char* why = nullptr;
  if (!findDevice(&device, &why)) {
    std::fprintf(stderr, "this lesson needs a GPU, and there is none: %s\n", why);
    return 77;
  }
  const Sorter sorter;

  std::printf("=== Section 7.5: a counting sort that is stable on a GPU ===\n\n");
  bool sorted = false;
  const int unstable_runs = show_inversions(sorter, &sorted);
  const bool stable_everywhere = check_stable_pass(sorter);
  const bool stable_always = repeat_stable_pass(sorter);

  prepare(sorter, keys_of_16_bits(MAX_N), 0, (1 << 2 * DIGIT_BITS) - 1);
  const Faults with_stable = radix_sort(sorter, stable_pass, MAX_N);
  const Faults with_atomic = radix_sort(sorter, atomic_pass, MAX_N);
  std::printf("radix sort of 16-bit keys in two passes, n = %d\n", MAX_N);
  std::printf("  pass                   keys out of order   wrong pairs\n");
  std::printf("  stable        %25d%14d\n", with_stable.descents, with_stable.wrong);
  std::printf("  lesson 21's   %25d%14d\n\n", with_atomic.descents, with_atomic.wrong);

  std::fprintf(stderr,
               "device: %s, compute capability %d.%d: 21's scatter lost the order in %d of "
               "20 runs; its radix sort is %s\n",
               device.name, device.major, device.minor, unstable_runs,
               with_atomic.descents > 0 ? "wrong" : "right here, by luck alone");

  const bool radix_right = with_stable.descents == 0 && with_stable.wrong == 0;
  const bool correct = sorted && stable_everywhere && stable_always && radix_right;
  std::printf(
      "What lesson 21's scatter leaves depends on which thread came first. It can come out\n");
  std::printf(
      "right; nothing makes it so. The stable pass places by thread order, in every run.\n\n");
  std::printf(
      "self-check: stable pass in place for every n, block size and run, radix sort right: %s\n",
      correct ? "confirmed" : "MISMATCH");
  return correct ? 0 : 1;
}
