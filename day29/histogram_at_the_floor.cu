// SPDX-License-Identifier: MIT
//
// 29.2  A histogram at the floor
//
// Lesson 29.1 calls the time of sumBytes the floor. It is no such thing: sumBytes loads one byte a
// lane, and the same sum with 16-byte loads is five times as fast on an H200. Here the floor is
// read with 16-byte loads, and the histogram has to follow it down. One table a block then suffers
// from bank conflicts, 8 or 16 copies of it do too, and with one copy for each lane of a warp there
// are none: counting costs little more than reading. CUB's histogram from the CUDA toolkit is the
// yardstick. Every result is verified bin by bin, before the timing and after it.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90 -o histogram_at_the_floor histogram_at_the_floor.cu
// Run:   ./histogram_at_the_floor
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cub/device/device_histogram.cuh>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

// 611 bytes more than a round size, so that neither 16 nor the grid divides it.
#ifndef HISTOGRAM_SMALL_BYTES
#define HISTOGRAM_SMALL_BYTES (64u * 1024 * 1024 + 611)
#endif
#ifndef HISTOGRAM_LARGE_BYTES
#define HISTOGRAM_LARGE_BYTES (1024u * 1024 * 1024 + 611)
#endif
#ifndef HISTOGRAM_RUNS
#define HISTOGRAM_RUNS 21  // timed runs, of which the median is printed
#endif
#ifndef HISTOGRAM_CALLS
#define HISTOGRAM_CALLS 20  // calls in a row that one run may take the mean of
#endif
#ifndef HISTOGRAM_BLOCKS
#define HISTOGRAM_BLOCKS 1000000  // at most; with few of them a slow sanitizer sees all loops
#endif
#ifndef HISTOGRAM_LOADS
#define HISTOGRAM_LOADS 2  // 16-byte loads that a counting thread has in flight
#endif
constexpr std::size_t kSmallBytes = HISTOGRAM_SMALL_BYTES;
constexpr std::size_t kLargeBytes = HISTOGRAM_LARGE_BYTES;
constexpr int kRuns = HISTOGRAM_RUNS;
constexpr std::size_t kBytesPerRun = 10 * kSmallBytes;  // a small input is called more often

constexpr int kBins = 256;
constexpr int kLanes = 32;      // of a warp, and as many as shared memory has banks
constexpr int kThreads = 1024;  // a block
// Two blocks have 64 KiB of tables and 2048 threads. __launch_bounds__ could name this number, too,
// but ptxas warns when an SM of the -arch holds fewer threads, as one of sm_75 does. For sm_90 the
// compiler stays within the 32 registers a thread with which two blocks fit, without being told.
constexpr int kBlocksPerSm = 2;
constexpr int kLoads = HISTOGRAM_LOADS;
constexpr int kFloorLoads = 4;
constexpr int kTunedLoads = 8, kTunedThreads = 256, kTunedBlocksPerSm = 4;
constexpr int kSweepSteps = 8;  // sizes of the last table: kSmallBytes, a quarter of it, ...
constexpr int kBytesPerVector = 16;

static_assert(kBins * kLanes * sizeof(unsigned int) <= 48 * 1024, "a table must fit 48 KiB");
static_assert(kLargeBytes < 0xffffffffu && kSmallBytes <= kLargeBytes, "32-bit counters");
static_assert(kSmallBytes >> 2 * (kSweepSteps - 1) > 0, "the last table would end with no bytes");
static_assert(kRuns >= 1 && HISTOGRAM_CALLS >= 1, "nothing would be measured");

using Bytes = std::vector<unsigned char>;
using Bins = std::vector<unsigned int>;

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

// common: time_kernel
// Runs launch() `warmups` times untimed, then `runs` times (at least 1) between two events.
// Returns the mean time of a timed run in milliseconds. The events sit on the GPU's own time line,
// so waiting for the second one is the only synchronization the measurement needs. A time that is
// not positive cannot be true: it is reported on stderr and ends the program with status 1.
template <class Launch>
float timeKernel(int warmups, int runs, Launch launch) {
  cudaEvent_t start, stop;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&stop));
  for (int run = 0; run < warmups; ++run) launch();
  CUDA_CHECK(cudaEventRecord(start));
  for (int run = 0; run < runs; ++run) launch();
  CUDA_CHECK(cudaEventRecord(stop));
  CUDA_CHECK(cudaGetLastError());
  CUDA_CHECK(cudaEventSynchronize(stop));
  float total_ms = 0.0f;
  CUDA_CHECK(cudaEventElapsedTime(&total_ms, start, stop));
  CUDA_CHECK(cudaEventDestroy(start));
  CUDA_CHECK(cudaEventDestroy(stop));
  if (!(total_ms > 0.0f)) {
    std::fprintf(stderr, "a measured time of %g ms cannot be true; the timing is void\n", total_ms);
    std::exit(1);
  }
  return total_ms / static_cast<float>(runs);
}
// end common: time_kernel

// ---- Reading 16 bytes at a time ---------------------------------------------------------------

// A 16-byte load needs an address that 16 divides. An input may start anywhere and end anywhere:
// up to 15 bytes at either end are read one by one.
struct Parts {
  std::size_t head;  // bytes before the first vector
  const uint4* vectors;
  std::size_t count;  // of vectors
  std::size_t tail;   // bytes after the last vector
};

__host__ __device__ inline Parts partsOf(const unsigned char* input, std::size_t size) {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(input) % kBytesPerVector;
  std::size_t head = (kBytesPerVector - past) % kBytesPerVector;
  if (head > size) head = size;
  const std::size_t count = (size - head) / kBytesPerVector;
  return {head, reinterpret_cast<const uint4*>(input + head), count,
          size - head - count * kBytesPerVector};
}

// __dp4a adds up the four bytes of a word, each times one.
__device__ unsigned int sumOfBytes(uint4 v) {
  const unsigned int ones = 0x01010101u;
  return __dp4a(v.x, ones, __dp4a(v.y, ones, __dp4a(v.z, ones, __dp4a(v.w, ones, 0u))));
}

// snippet: read-floor
// The floor: day 29's sum with wide loads, and the grid of this lesson's histograms. A thread has
// kFloorLoads loads under way, 16 bytes each, before it uses the first.
__global__ void __launch_bounds__(kThreads)
    sumVectors(const unsigned char* input, std::size_t size, unsigned int* partials) {
  const Parts parts = partsOf(input, size);
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  unsigned int sum = 0;
  std::size_t i = thread;
  for (; i + (kFloorLoads - 1) * stride < parts.count; i += kFloorLoads * stride) {
    uint4 loaded[kFloorLoads];
#pragma unroll
    for (int k = 0; k < kFloorLoads; ++k) loaded[k] = parts.vectors[i + k * stride];
#pragma unroll
    for (int k = 0; k < kFloorLoads; ++k) sum += sumOfBytes(loaded[k]);
  }
  for (; i < parts.count; i += stride) sum += sumOfBytes(parts.vectors[i]);
  if (thread < parts.head) sum += input[thread];
  if (thread < parts.tail) sum += input[size - 1 - thread];
  partials[thread] = sum;
}
// end snippet: read-floor

// The fastest sum that we found, for honesty: small blocks, eight loads under way at addresses
// that are near each other, and one partial a warp instead of one a thread. A histogram cannot
// have small blocks, because each block brings a table that has to be zeroed and merged.
__global__ void __launch_bounds__(kTunedThreads)
    sumTuned(const unsigned char* input, std::size_t size, unsigned int* partials) {
  const Parts parts = partsOf(input, size);
  const std::size_t thread = std::size_t{blockIdx.x} * kTunedThreads + threadIdx.x;
  constexpr std::size_t kTile = kTunedThreads * kTunedLoads;
  unsigned int sum = 0;
  for (std::size_t i = blockIdx.x * kTile + threadIdx.x; i < parts.count; i += gridDim.x * kTile) {
    uint4 loaded[kTunedLoads] = {};
#pragma unroll
    for (int k = 0; k < kTunedLoads; ++k) {
      if (i + k * kTunedThreads < parts.count) loaded[k] = parts.vectors[i + k * kTunedThreads];
    }
#pragma unroll
    for (int k = 0; k < kTunedLoads; ++k) sum += sumOfBytes(loaded[k]);
  }
  if (thread < parts.head) sum += input[thread];
  if (thread < parts.tail) sum += input[size - 1 - thread];
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % kLanes == 0) partials[thread / kLanes] = sum;
}

// Day 29's floor as it stands there: a load for every byte, one partial a thread.
__global__ void sumBytes(const unsigned char* input, std::size_t size, unsigned int* partials) {
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  unsigned int sum = 0;
  for (std::size_t i = thread; i < size; i += stride) sum += input[i];
  partials[thread] = sum;
}

// ---- Counting 16 bytes at a time --------------------------------------------------------------

// The compiler turns an atomicAdd of 1 on shared memory whose result is not used into
// ATOMS.POPC.INC: lanes that want the same counter are counted first and added once. That is why
// all-one-byte is the best case of one table. What costs is different counters in one bank: bins 32
// apart share a bank, and on uniform bytes a warp takes more than three turns for one instruction.
//
// A bin's counters begin kRow bytes after those of the bin before, so byte * kRow is where they
// begin in the table. kRow is a power of two. Multiplying or dividing the whole word by a power of
// two is a shift, which brings one of its four bytes to that place at once; kMask then removes what
// the other three leave around it. So a shift, a mask and an addition to s_base make an address.
// With an index instead of an offset the compiler needs more, and at this speed that shows.
template <int kCopies>
__device__ void countWord(unsigned int* s_column, unsigned int word) {
  constexpr unsigned int kRow = kCopies * sizeof(unsigned int);  // bytes from one bin to the next
  constexpr unsigned int kMask = 255 * kRow;
  char* const s_base = reinterpret_cast<char*>(s_column);
  const unsigned int offsets[] = {word * kRow & kMask, word / (256 / kRow) & kMask,
                                  word / (65536 / kRow) & kMask, word / (16777216 / kRow) & kMask};
#pragma unroll
  for (unsigned int offset : offsets) {
    atomicAdd(reinterpret_cast<unsigned int*>(s_base + offset), 1u);
  }
}

template <int kCopies>
__device__ void countVector(unsigned int* s_column, uint4 v) {
  countWord<kCopies>(s_column, v.x);
  countWord<kCopies>(s_column, v.y);
  countWord<kCopies>(s_column, v.z);
  countWord<kCopies>(s_column, v.w);
}

// What else we tried on an H200, and left out because it did not pay:
// - bulk copies (cp.async.bulk) into a ring in shared memory: every byte then passes shared memory
//   twice more, and the ring takes the room of a second block;
// - loading the next batch before the last one is counted, and eight loads instead of two: with
//   2048 threads an SM a thread has 32 registers, and addresses need them more;
// - a contiguous share of the input for each block: reading alone is slower that way;
// - smaller blocks: more tables to zero and to merge;
// - half of the blocks stopping early so that merges do not meet, and merging two bins with one
//   64-bit atomic: no difference;
// - no second table: a memset before each launch takes longer at 64 MiB, and a ticket by which the
//   last block finds out that it has to copy the bins takes longer still.
// Still to be paid on 64 MiB, and lost in the noise on 1 GiB: zeroing, summing and merging tables.

// snippet: column-kernel
// One kernel for all the designs: kCopies counters a bin, side by side, and a lane uses copy
// lane % kCopies. With 32 copies the counter of bin b and lane l is word b * 32 + l, and its bank
// is l, whatever the byte: each lane has a column, and a bank, of its own.
//
// `bins` must be zero, and comes so from the launch before: every launch zeroes `next_bins`.
template <int kCopies>
__global__ void __launch_bounds__(kThreads)
    histogramVectors(const unsigned char* input, std::size_t size, unsigned int* bins,
                     unsigned int* next_bins) {
  __shared__ unsigned int s_table[kBins * kCopies];
  const Parts parts = partsOf(input, size);
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;

  // The first loads start before the table is zeroed, so that the memory is busy meanwhile.
  std::size_t i = thread;
  uint4 loaded[kLoads];
  bool full = i + (kLoads - 1) * stride < parts.count;
  if (full) {
#pragma unroll
    for (int k = 0; k < kLoads; ++k) loaded[k] = parts.vectors[i + k * stride];
  }
  for (int b = threadIdx.x; b < kBins * kCopies; b += blockDim.x) s_table[b] = 0;
  if (blockIdx.x == 0) {
    for (int b = threadIdx.x; b < kBins; b += blockDim.x) next_bins[b] = 0;
  }
  __syncthreads();  // No one counts before the table is zero.

  unsigned int* const s_column = s_table + threadIdx.x % kCopies;
  while (full) {
#pragma unroll
    for (int k = 0; k < kLoads; ++k) countVector<kCopies>(s_column, loaded[k]);
    i += kLoads * stride;
    full = i + (kLoads - 1) * stride < parts.count;
    if (full) {
#pragma unroll
      for (int k = 0; k < kLoads; ++k) loaded[k] = parts.vectors[i + k * stride];
    }
  }
  for (; i < parts.count; i += stride) countVector<kCopies>(s_column, parts.vectors[i]);
  if (thread < parts.head) atomicAdd(s_column + input[thread] * kCopies, 1u);
  if (thread < parts.tail) atomicAdd(s_column + input[size - 1 - thread] * kCopies, 1u);
  __syncthreads();  // No one merges before all bytes of the block are counted.

  // Four threads sum the copies of a bin, a quarter each. They start at different places: if all
  // lanes began with the first copy of their quarter, they would meet in four banks.
  constexpr int kHelpers = kCopies < 4 ? 1 : 4;
  constexpr int kQuarter = kCopies / kHelpers;
  for (int item = threadIdx.x; item < kBins * kHelpers; item += blockDim.x) {
    const int bin = item / kHelpers;
    const int helper = item % kHelpers;
    unsigned int count = 0;
#pragma unroll
    for (int c = 0; c < kQuarter; ++c) {
      count += s_table[bin * kCopies + helper * kQuarter + (c ^ bin % kQuarter)];
    }
#pragma unroll
    for (int step = 1; step < kHelpers; step *= 2) count += __shfl_xor_sync(~0u, count, step);
    if (helper == 0 && count > 0) atomicAdd(&bins[bin], count);
  }
}
// end snippet: column-kernel

// ---- Launches -----------------------------------------------------------------------------------

struct Device {
  int sms = 1;
  unsigned int* d_bins[2] =
      {};  // taken in turn: one is counted into, the other is zeroed for later
  unsigned int* d_output = nullptr;  // CUB's
  unsigned int* d_partials = nullptr;
  void* d_temporary = nullptr;  // CUB's
  std::size_t temporary_bytes = 0;
};

// At most kBlocksPerSm blocks an SM, and no more than have a vector for every thread.
int blocksFor(const Device& device, std::size_t size) {
  const std::size_t useful = (size / kBytesPerVector + kThreads - 1) / kThreads;
  const std::size_t most = std::min(device.sms * kBlocksPerSm, HISTOGRAM_BLOCKS);
  return static_cast<int>(std::max<std::size_t>(1, std::min(useful, most)));
}

constexpr int kByteThreads = 256;  // day 29's grid, for day 29's sum
constexpr int kByteBlocks = 1024;

int byteBlocksFor(std::size_t size) {
  const std::size_t useful = (size + kByteThreads - 1) / kByteThreads;
  return static_cast<int>(std::max<std::size_t>(1, std::min<std::size_t>(useful, kByteBlocks)));
}

std::size_t partialsOf(const Device& device) {  // one a thread of the largest grid
  const int threads = device.sms * kBlocksPerSm * kThreads;
  return static_cast<std::size_t>(std::max(threads, kByteBlocks * kByteThreads));
}

// Counts `size` bytes at `d_input`, and returns where on the device the bins will be.
using Histogram = std::function<const unsigned int*(Device&, const unsigned char*, std::size_t)>;

template <int kCopies>
const unsigned int* countVectors(Device& device, const unsigned char* d_input, std::size_t size) {
  std::swap(device.d_bins[0], device.d_bins[1]);
  histogramVectors<kCopies>
      <<<blocksFor(device, size), kThreads>>>(d_input, size, device.d_bins[0], device.d_bins[1]);
  CUDA_CHECK(cudaGetLastError());
  return device.d_bins[0];
}

// CUB chooses its tuning for an architecture when it is compiled: it is a fair yardstick only in a
// program that is built with -arch for the GPU at hand.
const unsigned int* countWithCub(Device& device, const unsigned char* d_input, std::size_t size) {
  CUDA_CHECK(cub::DeviceHistogram::HistogramEven(device.d_temporary, device.temporary_bytes,
                                                 d_input, device.d_output, kBins + 1, 0, kBins,
                                                 static_cast<long long>(size)));
  return device.d_output;
}

void sumWithVectors(const Device& device, const unsigned char* d_input, std::size_t size) {
  sumVectors<<<blocksFor(device, size), kThreads>>>(d_input, size, device.d_partials);
  CUDA_CHECK(cudaGetLastError());
}

void sumTunedWell(const Device& device, const unsigned char* d_input, std::size_t size) {
  sumTuned<<<device.sms * kTunedBlocksPerSm, kTunedThreads>>>(d_input, size, device.d_partials);
  CUDA_CHECK(cudaGetLastError());
}

void sumWithBytes(const Device& device, const unsigned char* d_input, std::size_t size) {
  sumBytes<<<byteBlocksFor(size), kByteThreads>>>(d_input, size, device.d_partials);
  CUDA_CHECK(cudaGetLastError());
}

struct Contender {
  const char* name;
  Histogram count;
};

const Contender kCub = {"CUB HistogramEven", countWithCub};
const Contender kOneTable = {"one table a block", countVectors<1>};
const Contender kColumns = {"column per lane", countVectors<kLanes>};
const Contender kContenders[] = {
    kCub, kOneTable, {"8 copies", countVectors<8>}, {"16 copies", countVectors<16>}, kColumns};

Device makeDevice(int sms, std::size_t largest, const unsigned char* d_input) {
  Device device;
  device.sms = sms;
  for (unsigned int** table : {&device.d_bins[0], &device.d_bins[1], &device.d_output}) {
    CUDA_CHECK(cudaMalloc(table, kBins * sizeof(unsigned int)));
    CUDA_CHECK(cudaMemset(*table, 0, kBins * sizeof(unsigned int)));
  }
  CUDA_CHECK(cudaMalloc(&device.d_partials, partialsOf(device) * sizeof(unsigned int)));
  // Asked with a null pointer, CUB only says how much temporary memory it wants.
  countWithCub(device, d_input, largest);
  CUDA_CHECK(cudaMalloc(&device.d_temporary, device.temporary_bytes));
  return device;
}

// ---- Inputs and references: as in lesson 29.1 --------------------------------------------------

constexpr int kInputs = 3;
const char* const kInputNames[kInputs] = {"uniform bytes", "english text", "all one byte"};

Bytes makeInput(int input, std::size_t size) {
  static const char paragraph[] =
      "A histogram is the first thing to ask of a file that nobody has described. It takes one "
      "pass, keeps one counter for each kind of thing, and forgets the order in which they came. "
      "What remains is enough to guess the language of a letter, to see that a picture is too "
      "dark, or to choose short codes for common symbols. On one processor it is a line of code. "
      "On a machine with thousands of threads the same line becomes a crowd at a few doors, "
      "because text is not fair to its letters: every fifth byte of this paragraph is a blank, "
      "the letter e comes next, and a Z is hardly ever seen. Who counts in parallel must "
      "decide where the crowd waits, and for how long.\n";
  Bytes bytes(size, 'e');
  unsigned int state = 12345;
  std::size_t letter = 0;
  for (unsigned char& byte : bytes) {
    if (input == 0) {
      state = state * 1664525u + 1013904223u;
      byte = static_cast<unsigned char>(state >> 24);
    } else if (input == 1) {
      byte = static_cast<unsigned char>(paragraph[letter]);
      if (++letter == sizeof(paragraph) - 1) letter = 0;
    }
  }
  return bytes;
}

Bins referenceHistogram(const unsigned char* bytes, std::size_t size) {
  Bins bins(kBins, 0);
  for (std::size_t i = 0; i < size; ++i) ++bins[bytes[i]];
  return bins;
}

// ---- Checks: each ends the program with status 1 if a result is wrong --------------------------

// Two calls, from tables that hold garbage wherever a kernel has to write. The first must give the
// right bins, and must leave the second a table of zeros.
void checkHistogram(const Contender& contender, Device& device, const unsigned char* d_input,
                    std::size_t size, const Bins& want) {
  CUDA_CHECK(cudaMemset(device.d_bins[0], 0xff, kBins * sizeof(unsigned int)));
  CUDA_CHECK(cudaMemset(device.d_output, 0xff, kBins * sizeof(unsigned int)));
  for (int call = 0; call < 2; ++call) {
    Bins got(kBins, ~0u);
    CUDA_CHECK(cudaMemcpy(got.data(), contender.count(device, d_input, size),
                          kBins * sizeof(unsigned int), cudaMemcpyDeviceToHost));
    for (int b = 0; b < kBins; ++b) {
      if (got[b] == want[b]) continue;
      std::fprintf(stderr, "MISMATCH: %s, %zu bytes, call %d: bin %d: got %u, want %u\n",
                   contender.name, size, call, b, got[b], want[b]);
      std::exit(1);
    }
  }
}

using Sum = void (*)(const Device&, const unsigned char*, std::size_t);

// A partial that no one wrote counts as 0; how many are written depends on the grid.
void checkSum(Sum sum, const Device& device, const unsigned char* d_input, std::size_t size,
              const Bins& reference) {
  unsigned long long want = 0;
  for (int b = 0; b < kBins; ++b) want += 1ULL * b * reference[b];
  Bins partials(partialsOf(device), 0);
  CUDA_CHECK(cudaMemset(device.d_partials, 0, partials.size() * sizeof(unsigned int)));
  sum(device, d_input, size);
  CUDA_CHECK(cudaMemcpy(partials.data(), device.d_partials, partials.size() * sizeof(unsigned int),
                        cudaMemcpyDeviceToHost));
  const unsigned long long got = std::accumulate(partials.begin(), partials.end(), 0ULL);
  if (got == want) return;
  std::fprintf(stderr, "MISMATCH: sum of %zu bytes: got %llu, want %llu\n", size, got, want);
  std::exit(1);
}

// Sizes around the ends of vectors, warps and blocks, at addresses that 16 divides and does not.
void checkOddInputs(Device& device, unsigned char* d_input) {
  const Bytes bytes = makeInput(0, 70000);
  for (std::size_t offset : {0, 1, 7, 15}) {
    for (std::size_t size : {0, 1, 15, 16, 17, 31, 255, 257, 3991, 4097, 65553}) {
      CUDA_CHECK(cudaMemcpy(d_input + offset, bytes.data(), size, cudaMemcpyHostToDevice));
      const Bins want = referenceHistogram(bytes.data(), size);
      for (const Contender& contender : kContenders) {
        if (size > 0 || contender.name != kCub.name) {  // CUB leaves the bins as they are for none
          checkHistogram(contender, device, d_input + offset, size, want);
        }
      }
      for (Sum sum : {sumWithBytes, sumWithVectors, sumTunedWell}) {
        checkSum(sum, device, d_input + offset, size, want);
      }
    }
  }
}

// ---- Measurements -------------------------------------------------------------------------------

struct Row {
  std::size_t size;
  const char* input;
  const char* kernel;
  float ms;
};

// How many calls in a row make a run: enough that the pair of events around them weighs little.
int callsPerRun(std::size_t size) {
  const std::size_t fitting = kBytesPerRun / size;
  return static_cast<int>(
      std::max<std::size_t>(1, std::min<std::size_t>(fitting, HISTOGRAM_CALLS)));
}

// The median of kRuns runs. What a call needs to start from zero is part of the call.
template <class Call>
float medianTime(std::size_t size, Call call) {
  std::vector<float> times;
  for (int run = 0; run < kRuns; ++run) times.push_back(timeKernel(1, callsPerRun(size), call));
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

float measureHistogram(const Contender& contender, Device& device, const unsigned char* d_input,
                       std::size_t size, const Bins& want) {
  checkHistogram(contender, device, d_input, size, want);
  const float ms = medianTime(size, [&] { contender.count(device, d_input, size); });
  checkHistogram(contender, device, d_input, size, want);
  return ms;
}

float measureSum(Sum sum, const Device& device, const unsigned char* d_input, std::size_t size,
                 const Bins& reference) {
  checkSum(sum, device, d_input, size, reference);
  const float ms = medianTime(size, [&] { sum(device, d_input, size); });
  checkSum(sum, device, d_input, size, reference);
  return ms;
}

void measureSize(Device& device, unsigned char* d_input, std::size_t size, std::vector<Row>* rows) {
  for (int input = 0; input < kInputs; ++input) {
    const Bytes bytes = makeInput(input, size);
    const Bins want = referenceHistogram(bytes.data(), size);
    CUDA_CHECK(cudaMemcpy(d_input, bytes.data(), size, cudaMemcpyHostToDevice));
    const char* name = kInputNames[input];
    rows->push_back(
        {size, name, "sum, byte loads", measureSum(sumWithBytes, device, d_input, size, want)});
    rows->push_back({size, name, "sum, 16-byte loads",
                     measureSum(sumWithVectors, device, d_input, size, want)});
    rows->push_back(
        {size, name, "sum, tuned further", measureSum(sumTunedWell, device, d_input, size, want)});
    for (const Contender& contender : kContenders) {
      rows->push_back(
          {size, name, contender.name, measureHistogram(contender, device, d_input, size, want)});
    }
  }
}

// Kernels that are so fast are timed by how quickly launches follow each other; that counts too.
// On an H200 CUB, which launches two kernels, wins nowhere in this table. One table has less to
// zero and to merge than columns: it is often ahead on small inputs, and at most sizes on all one
// byte, its best case.
struct SweepRow {
  std::size_t size;
  const char* input;
  float cub_ms, one_ms, columns_ms;
};

std::vector<SweepRow> sweepSizes(Device& device, unsigned char* d_input) {
  std::vector<SweepRow> rows;
  for (int input = 0; input < kInputs; ++input) {
    const Bytes bytes = makeInput(input, kSmallBytes);
    CUDA_CHECK(cudaMemcpy(d_input, bytes.data(), kSmallBytes, cudaMemcpyHostToDevice));
    std::size_t size = kSmallBytes;
    for (int step = 0; step < kSweepSteps; ++step, size /= 4) {
      const Bins want = referenceHistogram(bytes.data(), size);
      rows.push_back({size, kInputNames[input], measureHistogram(kCub, device, d_input, size, want),
                      measureHistogram(kOneTable, device, d_input, size, want),
                      measureHistogram(kColumns, device, d_input, size, want)});
    }
  }
  return rows;
}

// ---- Results ------------------------------------------------------------------------------------

float timeOf(const std::vector<Row>& rows, const Row& like, const char* kernel) {
  for (const Row& row : rows) {
    if (row.size == like.size && row.input == like.input && row.kernel == std::string(kernel)) {
      return row.ms;
    }
  }
  return 0.0f;
}

void printRows(const std::vector<Row>& rows) {
  std::printf(
      "      size  input          kernel              time (ms)  rate (GB/s)  of floor (%%)"
      "  CUB ratio\n");
  for (const Row& row : rows) {
    const double floor_ms = timeOf(rows, row, "sum, 16-byte loads");
    const double cub_ms = timeOf(rows, row, kCub.name);
    std::printf("%10zu  %-13s  %-18s  %9.5f  %11.1f  %12.1f  %9.2f\n", row.size, row.input,
                row.kernel, row.ms, static_cast<double>(row.size) * 1e-6 / row.ms,
                100.0 * floor_ms / row.ms, cub_ms / row.ms);
  }
}

using Time = float SweepRow::*;

// The largest size of the table at which one kernel takes at least 2 % less time on this input than
// the others.
std::size_t largestWin(const std::vector<SweepRow>& rows, const char* input, Time winner) {
  std::size_t largest = 0;
  for (const SweepRow& row : rows) {
    if (row.input != input) continue;
    bool wins = true;
    for (const Time other : {&SweepRow::cub_ms, &SweepRow::one_ms, &SweepRow::columns_ms}) {
      wins = wins && (other == winner || row.*winner < 0.98f * row.*other);
    }
    if (wins) largest = std::max(largest, row.size);
  }
  return largest;
}

void printSweep(const std::vector<SweepRow>& rows, int cache_bytes) {
  std::printf("\nSmaller and smaller inputs; those well below the size of the largest cache\n");
  std::printf("(on a GPU the L2 cache; here %d MiB) stay in it from call to call:\n",
              cache_bytes / (1024 * 1024));
  std::printf("      size  input          CUB (us)  one table (us)  column per lane (us)\n");
  for (const SweepRow& row : rows) {
    std::printf("%10zu  %-13s  %8.2f  %14.2f  %20.2f\n", row.size, row.input, 1e3 * row.cub_ms,
                1e3 * row.one_ms, 1e3 * row.columns_ms);
  }
  std::printf(
      "\nThe largest size of this table at which a kernel wins by 2 %% or more (0: never):\n");
  for (const char* input : kInputNames) {
    std::printf("  %-13s  CUB %zu, one table %zu, column per lane %zu\n", input,
                largestWin(rows, input, &SweepRow::cub_ms),
                largestWin(rows, input, &SweepRow::one_ms),
                largestWin(rows, input, &SweepRow::columns_ms));
  }
}

// What the first table says of its largest size: how far day 29's floor is from the real one, and
// how near to that the histograms come on the input that suits them least.
void printVerdict(const std::vector<Row>& rows) {
  float one_table = 1e9f, columns = 1e9f, byte_loads = 1e9f;  // the least of each over the inputs
  for (const Row& row : rows) {
    if (row.size != rows.back().size) continue;
    const float floor_ms = timeOf(rows, row, "sum, 16-byte loads");
    one_table = std::min(one_table, floor_ms / timeOf(rows, row, kOneTable.name));
    columns = std::min(columns, floor_ms / timeOf(rows, row, kColumns.name));
    byte_loads = std::min(byte_loads, timeOf(rows, row, "sum, byte loads") / floor_ms);
  }
  std::printf("\nAt %zu bytes the sum by byte loads, day 29's floor, takes %.1f times as long as\n",
              rows.back().size, byte_loads);
  std::printf("the sum by 16-byte loads. On the worst input one table a block gets to %.1f %% of\n",
              100.0f * one_table);
  std::printf("that floor, and a column per lane to %.1f %%: with a column for each lane no two\n",
              100.0f * columns);
  std::printf("lanes of a warp meet in a bank, whatever the bytes are.\n");
}

int main() {
  cudaDeviceProp properties;
  const char* why = "";
  if (!findDevice(&properties, &why)) {
    std::fprintf(stderr, "no GPU to run on (%s): nothing was measured\n", why);
    return 77;  // what test runners take for "skipped"
  }
  std::vector<std::size_t> sizes = {kSmallBytes};
  std::size_t free_bytes = 0, total_bytes = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  const bool has_room = kLargeBytes + (64u << 20) <= free_bytes;
  if (has_room) sizes.push_back(kLargeBytes);

  unsigned char* d_input = nullptr;
  CUDA_CHECK(cudaMalloc(&d_input, sizes.back() + 128 * 1024));  // room for the odd inputs, too
  Device device = makeDevice(properties.multiProcessorCount, sizes.back(), d_input);
  checkOddInputs(device, d_input);
  std::vector<Row> rows;
  for (std::size_t size : sizes) measureSize(device, d_input, size, &rows);
  const std::vector<SweepRow> sweep = sweepSizes(device, d_input);

  std::printf("GPU:      %s, compute capability %d.%d\n", properties.name, properties.major,
              properties.minor);
  std::printf("kernels:  %d threads a block, %d blocks an SM, %d loads of %d bytes in flight\n",
              kThreads, kBlocksPerSm, kLoads, kBytesPerVector);
  std::printf(
      "times:    median of %d runs; a run is the mean of %d calls, of %d at the large size\n\n",
      kRuns, callsPerRun(kSmallBytes), callsPerRun(kLargeBytes));
  if (!has_room) std::printf("left out for want of memory: %zu in size\n\n", kLargeBytes);
  printRows(rows);
  printSweep(sweep, properties.l2CacheSize);
  printVerdict(rows);
  return 0;
}
