// SPDX-License-Identifier: MIT
//
// 29.1  A byte histogram, with and without privatization
//
// Counts how often each of the 256 byte values occurs in 64 MiB, first with one global atomic per
// byte, then with a private copy of the bins in each block's shared memory. Three inputs differ
// only in how many threads want the same bin at the same time, so what differs between their times
// is contention. sumBytes, which reads every byte and counts nothing, stands beside them as "the
// floor": the time to read the input one byte a lane. Lesson 29.2 asks whether that is the floor.
// Nothing is printed unless every bin is right, before the timing and after it.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_75 -o histogram histogram.cu
// Run:   ./histogram
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <vector>

// 611 bytes more than 64 MiB, so that the input is no multiple of the grid: a kernel that treats
// the tail wrongly shows as a wrong count. A small machine may set less: -DHISTOGRAM_BYTES=1000003
#ifndef HISTOGRAM_BYTES
#define HISTOGRAM_BYTES (64u * 1024 * 1024 + 611)
#endif
constexpr std::size_t kBytes = HISTOGRAM_BYTES;
constexpr int kBins = 256;  // 1 KiB of counters, which fits anywhere

// A fixed grid whose threads stride over the input, and not one thread a byte: every block merges
// all bins once, so the merge costs kBlocks x kBins global atomics. Twice the blocks would halve
// the work of a block and double the merge.
constexpr int kThreadsPerBlock = 256;
constexpr int kBlocks = 1024;
constexpr long long kMergeAtomics = 1LL * kBlocks * kBins;

constexpr int kWarmupRuns = 3;
constexpr int kTimedRuns = 10;
constexpr unsigned char kOneByteValue = 'e';  // what a plausible file holds, not a test pattern

static_assert(kThreadsPerBlock % 32 == 0, "a block must be made of whole warps");
static_assert(kBins == std::numeric_limits<unsigned char>::max() + 1, "one bin per byte value");
static_assert(kBins * sizeof(unsigned int) <= 48 * 1024, "a private copy must fit 48 KiB");
// A histogram kernel adds to its bins, so zeroing them inside the timed loop would be timed as
// well. The loop runs without: the bins are zeroed before it, every run adds one more histogram,
// and no counter may overflow on the way.
static_assert((kWarmupRuns + kTimedRuns) * static_cast<unsigned long long>(kBytes) <=
                  std::numeric_limits<unsigned int>::max(),
              "the counts of all runs together must fit a 32-bit bin");

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

// ---- Inputs: the kernels never know which one they read ---------------------------------------

// The high byte of a linear congruential generator. Its low bits repeat after a short period.
Bytes makeUniformBytes(std::size_t size) {
  Bytes bytes(size);
  unsigned int state = 12345;
  for (unsigned char& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<unsigned char>(state >> 24);
  }
  return bytes;
}

// One paragraph, repeated. The repetition changes nothing: a histogram sees only which bytes there
// are and how many of each, not how they are arranged.
Bytes makeEnglishText(std::size_t size) {
  static const char paragraph[] =
      "A histogram is the first thing to ask of a file that nobody has described. It takes one "
      "pass, keeps one counter for each kind of thing, and forgets the order in which they came. "
      "What remains is enough to guess the language of a letter, to see that a picture is too "
      "dark, or to choose short codes for common symbols. On one processor it is a line of code. "
      "On a machine with thousands of threads the same line becomes a crowd at a few doors, "
      "because text is not fair to its letters: every fifth byte of this paragraph is a blank, "
      "the letter e comes next, and a Z is hardly ever seen. Who counts in parallel must "
      "decide where the crowd waits, and for how long.\n";
  const std::size_t length = sizeof(paragraph) - 1;
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<unsigned char>(paragraph[i % length]);
  }
  return bytes;
}

// ---- Reference: one thread, one loop -----------------------------------------------------------

Bins referenceHistogram(const Bytes& bytes) {
  Bins bins(kBins, 0);
  for (unsigned char byte : bytes) ++bins[byte];
  return bins;
}

unsigned long long referenceSum(const Bytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), 0ULL);
}

struct Skew {
  double max_bin_percent;  // the share of the busiest bin
  int bins_used;
};

Skew inputSkew(const Bins& bins, std::size_t size) {
  const unsigned int busiest = *std::max_element(bins.begin(), bins.end());
  const auto unused = std::count(bins.begin(), bins.end(), 0u);
  return {size > 0 ? 100.0 * busiest / static_cast<double>(size) : 0.0,
          kBins - static_cast<int>(unused)};
}

// ---- Kernels ----------------------------------------------------------------------------------
//
// All three stride over the input in the same way, and are right for any size and any grid. A byte
// is read as unsigned char: a plain char may be signed, and every value from 128 on would become a
// negative index.

// snippet: sum-kernel
// Reads every byte, touches no counter: one partial sum a thread. With 262,144 threads the partials
// add 1 MiB of writes to 64 MiB of reads. A partial is right as long as its thread reads less than
// 16 MiB; in this grid a thread reads at most 257 bytes.
__global__ void sumBytes(const unsigned char* input, std::size_t size, unsigned int* partials) {
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  unsigned int sum = 0;
  // Consecutive lanes read consecutive bytes: 32 addresses, one 32-byte sector.
  for (std::size_t i = thread; i < size; i += stride) sum += input[i];
  partials[thread] = sum;
}
// end snippet: sum-kernel

// snippet: global-kernel
// One global atomic per byte. Any of the other 262,143 threads of the grid may want the same
// counter at the same time, and then they queue.
__global__ void histogramGlobal(const unsigned char* input, std::size_t size, unsigned int* bins) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += stride) {
    atomicAdd(&bins[input[i]], 1u);
  }
}
// end snippet: global-kernel

// snippet: private-kernel
// One shared atomic per byte, then one global atomic per bin and block. A counter belongs to one
// block now, so a thread has 255 rivals for it. What can still make lanes wait for each other is
// shared memory itself: it has 32 banks, and bins 32 apart share one.
__global__ void histogramPrivate(const unsigned char* input, std::size_t size, unsigned int* bins) {
  __shared__ unsigned int s_bins[kBins];

  // A loop and not `if (threadIdx.x < kBins)`: with 128 threads that would leave out half the bins,
  // and nothing would say so.
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) s_bins[bin] = 0;
  __syncthreads();  // No one counts before all bins are zero.

  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += stride) {
    atomicAdd(&s_bins[input[i]], 1u);
  }
  __syncthreads();  // No one merges before all bytes of the block are counted.

  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) atomicAdd(&bins[bin], s_bins[bin]);
}
// end snippet: private-kernel

// ---- Device side of the host: memory and launches ----------------------------------------------

struct DeviceData {
  std::size_t size = 0;  // bytes of input
  unsigned char* d_input = nullptr;
  unsigned int* d_bins = nullptr;
  unsigned int* d_partials = nullptr;
  std::size_t partials = 0;  // one for each thread of the grid
};

DeviceData allocateOnDevice(std::size_t size, int blocks, int threads) {
  DeviceData data;
  data.size = size;
  data.partials = static_cast<std::size_t>(blocks) * threads;
  CUDA_CHECK(cudaMalloc(&data.d_input, size + 1));  // never a request for 0 bytes
  CUDA_CHECK(cudaMalloc(&data.d_bins, kBins * sizeof(unsigned int)));
  CUDA_CHECK(cudaMalloc(&data.d_partials, (data.partials + 1) * sizeof(unsigned int)));
  return data;
}

void freeOnDevice(const DeviceData& data) {
  CUDA_CHECK(cudaFree(data.d_input));
  CUDA_CHECK(cudaFree(data.d_bins));
  CUDA_CHECK(cudaFree(data.d_partials));
}

void launchSum(const DeviceData& data, int blocks, int threads) {
  sumBytes<<<blocks, threads>>>(data.d_input, data.size, data.d_partials);
  CUDA_CHECK(cudaGetLastError());
}

void launchGlobal(const DeviceData& data, int blocks, int threads) {
  histogramGlobal<<<blocks, threads>>>(data.d_input, data.size, data.d_bins);
  CUDA_CHECK(cudaGetLastError());
}

void launchPrivate(const DeviceData& data, int blocks, int threads) {
  histogramPrivate<<<blocks, threads>>>(data.d_input, data.size, data.d_bins);
  CUDA_CHECK(cudaGetLastError());
}

using Launch = void (*)(const DeviceData&, int, int);

// The kernels add to the bins, so they must be zero. The partials are overwritten, so they start
// from a value that no thread can leave: one that was not written makes the total far too large.
void zeroBins(const DeviceData& data) {
  CUDA_CHECK(cudaMemset(data.d_bins, 0, kBins * sizeof(unsigned int)));
}

void poisonPartials(const DeviceData& data) {
  CUDA_CHECK(cudaMemset(data.d_partials, 0xff, data.partials * sizeof(unsigned int)));
}

// ---- Checks -----------------------------------------------------------------------------------

// After `runs` runs of a kernel each bin must hold `runs` times the reference, and all bins
// together `runs` times the number of bytes. The second follows from the first only if the
// reference itself has counted every byte.
bool binsAreRight(const char* kernel, const char* input, const DeviceData& data,
                  const Bins& reference, unsigned int runs) {
  Bins got(kBins, ~0u);
  CUDA_CHECK(
      cudaMemcpy(got.data(), data.d_bins, kBins * sizeof(unsigned int), cudaMemcpyDeviceToHost));
  bool right = true;
  for (int bin = 0; bin < kBins; ++bin) {
    const unsigned int want = runs * reference[bin];
    if (got[bin] == want) continue;
    std::fprintf(stderr, "MISMATCH: %s, %s, after %u runs: bin %d: got %u, want %u\n", kernel,
                 input, runs, bin, got[bin], want);
    right = false;
  }
  const unsigned long long total = std::accumulate(got.begin(), got.end(), 0ULL);
  const unsigned long long want_total = 1ULL * runs * data.size;
  if (total != want_total) {
    std::fprintf(stderr, "MISMATCH: %s, %s, after %u runs: all bins: got %llu, want %llu\n", kernel,
                 input, runs, total, want_total);
    right = false;
  }
  return right;
}

bool sumIsRight(const DeviceData& data, unsigned long long want) {
  std::vector<unsigned int> partials(data.partials, ~0u);
  CUDA_CHECK(cudaMemcpy(partials.data(), data.d_partials, partials.size() * sizeof(unsigned int),
                        cudaMemcpyDeviceToHost));
  const unsigned long long got = std::accumulate(partials.begin(), partials.end(), 0ULL);
  if (got == want) return true;
  std::fprintf(stderr, "MISMATCH: sumBytes: got %llu, want %llu\n", got, want);
  return false;
}

// ---- Measurements: each is verified before it is timed, and once more after --------------------

float measureSum(const DeviceData& data, unsigned long long want) {
  poisonPartials(data);
  launchSum(data, kBlocks, kThreadsPerBlock);
  if (!sumIsRight(data, want)) std::exit(1);

  poisonPartials(data);
  const float ms =
      timeKernel(kWarmupRuns, kTimedRuns, [&] { launchSum(data, kBlocks, kThreadsPerBlock); });
  if (!sumIsRight(data, want)) std::exit(1);
  return ms;
}

// A kernel that updates its output in place cannot be repeated without a reset between the runs,
// and a reset between the runs would be timed too. The way out: the first check stands on zeroed
// bins, and the timed loop never reads its counts, it lets them grow. What they grew to is checked
// at the end: as many histograms on top of each other as there were runs.
float measureHistogram(const char* kernel, Launch launch, const char* input, const DeviceData& data,
                       const Bins& reference) {
  zeroBins(data);
  launch(data, kBlocks, kThreadsPerBlock);
  if (!binsAreRight(kernel, input, data, reference, 1)) std::exit(1);

  zeroBins(data);
  const float ms =
      timeKernel(kWarmupRuns, kTimedRuns, [&] { launch(data, kBlocks, kThreadsPerBlock); });
  if (!binsAreRight(kernel, input, data, reference, kWarmupRuns + kTimedRuns)) std::exit(1);
  return ms;
}

struct Row {
  const char* input;
  Skew skew;
  float global_ms;
  float private_ms;
};

struct Results {
  float sum_ms;
  std::vector<Row> rows;
};

Results measureAll() {
  const char* const names[] = {"uniform bytes", "english text", "all one byte"};
  const Bytes inputs[] = {makeUniformBytes(kBytes), makeEnglishText(kBytes),
                          Bytes(kBytes, kOneByteValue)};
  const DeviceData data = allocateOnDevice(kBytes, kBlocks, kThreadsPerBlock);
  Results results{};
  for (int i = 0; i < 3; ++i) {
    CUDA_CHECK(cudaMemcpy(data.d_input, inputs[i].data(), kBytes, cudaMemcpyHostToDevice));
    // The floor is measured once: sumBytes does the same work whatever the bytes say.
    if (i == 0) results.sum_ms = measureSum(data, referenceSum(inputs[i]));
    const Bins reference = referenceHistogram(inputs[i]);
    results.rows.push_back(
        {names[i], inputSkew(reference, kBytes),
         measureHistogram("histogramGlobal", launchGlobal, names[i], data, reference),
         measureHistogram("histogramPrivate", launchPrivate, names[i], data, reference)});
  }
  freeOnDevice(data);
  return results;
}

// ---- Results ----------------------------------------------------------------------------------

// Bytes of input only: the writes of bins and partials are not what is compared.
double bandwidthGBs(std::size_t bytes, float ms) {
  return static_cast<double>(bytes) * 1e-6 / ms;
}

void printSetting(const cudaDeviceProp& device) {
  std::printf("GPU:            %s, compute capability %d.%d\n", device.name, device.major,
              device.minor);
  std::printf("shared memory:  %zu KiB a block by default, %zu KiB with opt-in, %zu KiB per SM\n",
              device.sharedMemPerBlock / 1024, device.sharedMemPerBlockOptin / 1024,
              device.sharedMemPerMultiprocessor / 1024);
  std::printf("input:          %zu bytes (%.2f MiB), %d bins\n", kBytes,
              static_cast<double>(kBytes) / (1024 * 1024), kBins);
  std::printf("grid:           %d blocks x %d threads, mean of %d runs after %d warm-ups\n\n",
              kBlocks, kThreadsPerBlock, kTimedRuns, kWarmupRuns);
  std::printf("atomic updates that reach global memory:\n");
  std::printf("  histogramGlobal:   %zu (one per byte)\n", kBytes);
  std::printf("  histogramPrivate:  %lld (%d blocks x %d bins), fewer by a factor of %.1f\n\n",
              kMergeAtomics, kBlocks, kBins, static_cast<double>(kBytes) / kMergeAtomics);
}

void printTimes(const Results& results) {
  std::printf("sumBytes, every byte read and none counted: %.4f ms, %.0f GB/s\n\n", results.sum_ms,
              bandwidthGBs(kBytes, results.sum_ms));
  std::printf("input          max bin  bins used  global (ms)  private (ms)  speedup\n");
  for (const Row& row : results.rows) {
    std::printf("%-13s  %6.1f%%  %9d  %11.4f  %12.4f  %6.1fx\n", row.input,
                row.skew.max_bin_percent, row.skew.bins_used, row.global_ms, row.private_ms,
                static_cast<double>(row.global_ms) / row.private_ms);
  }
  std::printf("\nEvery row read the same number of bytes through the same two kernels. Only the\n");
  std::printf("values differ, and with them how many threads want one bin at the same time. So\n");
  std::printf("the spread down a column is contention.\n");
}

int main() {
  cudaDeviceProp device;
  const char* why = "";
  if (!findDevice(&device, &why)) {
    std::fprintf(stderr, "no GPU to run on (%s): nothing was measured\n", why);
    return 77;  // what test runners take for "skipped"
  }
  // Measure and verify first, print after: a failure on the way leaves no results on stdout.
  const Results results = measureAll();
  printSetting(device);
  printTimes(results);
  return 0;
}
