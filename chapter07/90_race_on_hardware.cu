// SPDX-License-Identifier: MIT
//
// 7.4  The race on real hardware
//
// Lesson 19 models hist[b]++ without atomics: warps take turns, and in each turn a bucket gains at
// most one. Here the same increments run on a device. The model turns out to be an upper bound and
// no estimate: a real GPU has thousands of warps under way, nearly all of them read the same stale
// value, and of sixteen million increments fewer than one in a thousand survives. The races are
// meant: a race detector reports both of the first two kernels, and it is right.
//
// Build: nvcc -std=c++17 -O2 -arch=sm_75 90_race_on_hardware.cu -o race_on_hardware
// Run:   ./race_on_hardware
// Stderr: device: {text}
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#ifndef RACE_LAUNCHES
#define RACE_LAUNCHES 100  // per line of the table and block size; a CPU is content with fewer
#endif
#ifndef RACE_MAX_N
#define RACE_MAX_N (1 << 24)  // lines with a larger N are left out, for slow sanitizers
#endif

constexpr int LAUNCHES = RACE_LAUNCHES;
constexpr int NUM_BUCKETS = 10;
constexpr int WARP_SIZE = 32;
constexpr int SIZES[] = {32, 256, 1000, 2048, 1 << 20, 1 << 24};
constexpr int POISON = -1;

static_assert(LAUNCHES >= 1, "a median needs a launch");

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

// ---- The kernels. Element i belongs to bucket i % NUM_BUCKETS, as in lesson 19. -----------------

// The line that everybody writes first. It compiles to a load, an add and a store.
__global__ void count_plain(int* g_hist, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) g_hist[i % NUM_BUCKETS]++;
}

// The same with a promise. Since Volta a warp's lanes may run apart; that they do not do so in so
// short a kernel is a habit of the hardware. __syncwarp() makes it a rule: no lane stores before
// every lane of its warp has loaded, and that is all that the bound below needs.
__global__ void count_in_step(int* g_hist, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  int seen = 0;
  if (i < n) seen = g_hist[i % NUM_BUCKETS];
  __syncwarp();
  if (i < n) g_hist[i % NUM_BUCKETS] = seen + 1;
}

__global__ void count_atomic(int* g_hist, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&g_hist[i % NUM_BUCKETS], 1);
}

using Kernel = void (*)(int*, int);

// ---- The bounds -------------------------------------------------------------------------------

int elements_in_bucket(int n, int bucket) {
  return (n - bucket + NUM_BUCKETS - 1) / NUM_BUCKETS;
}

// The model of lesson 19 for one bucket: how many warps hold an element of it.
//
// Why no machine can keep more: suppose that a bucket ends at v. The warp that stored v had loaded
// v - 1, which a warp before it had stored, having loaded v - 2, and so on down to 0: a chain of v
// stores, each after the load of the same lane and before the next load of the chain. No warp is
// in the chain twice, because all its loads come before all its stores. So v is at most the number
// of warps that touch the bucket, in whatever order they ran. Warps that take turns reach the
// bound; warps that overlap share links of the chain and stay below it. At least 1 is left, because
// every store stores at least 0 + 1.
int warps_on_bucket(int n, int bucket) {
  int warps = 0;
  for (int start = 0; start < n; start += WARP_SIZE) {
    // The first element of this bucket at or after `start`.
    const int distance = ((bucket - start) % NUM_BUCKETS + NUM_BUCKETS) % NUM_BUCKETS;
    const bool in_warp = distance < WARP_SIZE && start + distance < n;
    warps += in_warp ? 1 : 0;
  }
  return warps;
}

// ---- Launching and judging -------------------------------------------------------------------

std::vector<int> run(Kernel kernel, int block_size, int n, int* g_hist) {
  CUDA_CHECK(cudaMemset(g_hist, 0, NUM_BUCKETS * sizeof(int)));
  kernel<<<(n + block_size - 1) / block_size, block_size>>>(g_hist, n);
  CUDA_CHECK(cudaGetLastError());
  std::vector<int> hist(NUM_BUCKETS, POISON);
  CUDA_CHECK(cudaMemcpy(hist.data(), g_hist, NUM_BUCKETS * sizeof(int), cudaMemcpyDeviceToHost));
  return hist;
}

// True if every bucket ends between 1 and its bound. The first one that does not is reported.
bool within(const std::vector<int>& hist, const std::vector<int>& bound, const char* what, int n) {
  for (int b = 0; b < NUM_BUCKETS; ++b) {
    if (hist[b] >= 1 && hist[b] <= bound[b]) continue;
    std::fprintf(stderr, "%s, N = %d: bucket %d ends at %d, not in 1..%d\n", what, n, b, hist[b],
                 bound[b]);
    return false;
  }
  return true;
}

int total(const std::vector<int>& hist) {
  int sum = 0;
  for (int count : hist) sum += count;
  return sum;
}

struct Survivors {
  int least, median, most;  // totals counted, over all launches
  bool in_bounds;
};

Survivors launch_often(Kernel kernel, int block_size, int n, const std::vector<int>& bound,
                       const char* what, int* g_hist) {
  std::vector<int> totals;
  bool in_bounds = true;
  for (int launch = 0; launch < LAUNCHES; ++launch) {
    const std::vector<int> hist = run(kernel, block_size, n, g_hist);
    in_bounds = in_bounds && within(hist, bound, what, n);
    totals.push_back(total(hist));
  }
  std::sort(totals.begin(), totals.end());
  return {totals.front(), totals[totals.size() / 2], totals.back(), in_bounds};
}

// What every count must be with atomics, and what no count can exceed without.
std::vector<int> elements_per_bucket(int n) {
  std::vector<int> elements(NUM_BUCKETS);
  for (int b = 0; b < NUM_BUCKETS; ++b) elements[b] = elements_in_bucket(n, b);
  return elements;
}

struct Verdict {
  bool in_bounds = true;
  bool complete = true;  // not one increment was lost
  int rows = 0;
  int largest = 0, median_of_largest = 0;
};

// Prints the table of one kernel and block size. `lockstep` says that the lanes of a warp load
// together, and that therefore the model is the bound. Without it a bucket may keep all its
// elements, so that N is the only bound.
Verdict measure(const char* name, Kernel kernel, int block_size, bool lockstep, int* g_hist) {
  std::printf("\n%s, blocks of %d\n", name, block_size);
  std::printf("%9s%10s%10s%10s%10s%10s\n", "N", "model", "bound", "min", "median", "max");
  Verdict verdict;
  for (int n : SIZES) {
    if (n > RACE_MAX_N) continue;
    std::vector<int> model(NUM_BUCKETS);
    for (int b = 0; b < NUM_BUCKETS; ++b) model[b] = warps_on_bucket(n, b);
    const std::vector<int> bound = lockstep ? model : elements_per_bucket(n);
    const Survivors s = launch_often(kernel, block_size, n, bound, name, g_hist);
    std::printf("%9d%10d%10d%10d%10d%10d\n", n, total(model), total(bound), s.least, s.median,
                s.most);
    verdict.in_bounds = verdict.in_bounds && s.in_bounds;
    verdict.complete = verdict.complete && s.least == n;
    ++verdict.rows;
    verdict.largest = n;
    verdict.median_of_largest = s.median;
  }
  return verdict;
}

bool atomic_is_exact(int* g_hist) {
  bool exact = true;
  for (int n : SIZES) {
    if (n > RACE_MAX_N) continue;
    exact = exact && run(count_atomic, 256, n, g_hist) == elements_per_bucket(n);
  }
  return exact;
}

void report_device(const cudaDeviceProp& device, bool lockstep, bool complete,
                   const Verdict& by_256) {
  std::fprintf(stderr, "device: %s, compute capability %d.%d: ", device.name, device.major,
               device.minor);
  if (!lockstep) {
    std::fprintf(stderr, "lanes run one after another here, so hist[b]++ may keep all N%s\n",
                 complete ? ", and did; that does not make it right" : "");
  } else if (complete) {
    std::fprintf(stderr, "no race shows here, hist[b]++ lost nothing; that proves nothing\n");
  } else {
    std::fprintf(stderr, "the race shows: of %d increments %d survive (median)\n", by_256.largest,
                 by_256.median_of_largest);
  }
}

int main() {
  cudaDeviceProp device;
  const char* why = nullptr;
  if (!findDevice(&device, &why)) {
    std::fprintf(stderr, "this lesson needs a GPU, and there is none: %s\n", why);
    return 77;
  }
  // Kernels that run on a CPU report compute capability 0.0. There a lane runs on until it has to
  // wait, the lanes of a warp are no wave, and plain increments may survive all N of them. Only
  // __syncwarp() keeps lanes in step everywhere.
  const bool lockstep = device.major > 0;

  std::printf("=== Section 7.4: the race on real hardware ===\n\n");
  std::printf("How many increments of hist[i %% %d]++ survive without atomics, for i below N.\n",
              NUM_BUCKETS);
  std::printf("Launches per row: %d. `model` is what lesson 19 keeps, `bound` what this run\n",
              LAUNCHES);
  std::printf("is checked against. All figures are sums over the %d buckets, and each bucket\n",
              NUM_BUCKETS);
  std::printf("is checked by itself.\n");

  int* g_hist = nullptr;
  CUDA_CHECK(cudaMalloc(&g_hist, NUM_BUCKETS * sizeof(int)));
  const Verdict by_32 = measure("hist[b]++", count_plain, 32, lockstep, g_hist);
  const Verdict by_256 = measure("hist[b]++", count_plain, 256, lockstep, g_hist);
  const Verdict in_step = measure("in step", count_in_step, 256, true, g_hist);
  const bool atomic_exact = atomic_is_exact(g_hist);
  CUDA_CHECK(cudaFree(g_hist));
  report_device(device, lockstep, by_32.complete && by_256.complete, by_256);

  const bool plain_in_bounds = by_32.in_bounds && by_256.in_bounds;
  const int plain_rows = by_32.rows + by_256.rows;
  const bool correct = plain_in_bounds && in_step.in_bounds && atomic_exact;
  std::printf("\nThe model lets warps take turns, and each adds at most one to a bucket. Warps\n");
  std::printf("that overlap may keep less. Warps whose lanes load together cannot keep more:\n");
  std::printf("there the model is the bound. Where lanes run one after another, as on a CPU,\n");
  std::printf("hist[b]++ may keep everything, and its bound is N. Nothing promises any of\n");
  std::printf("these counts: the next launch may give others, and none estimates anything.\n\n");
  std::printf("hist[b]++: checked against the model in %d rows, against N in %d\n",
              lockstep ? plain_rows : 0, lockstep ? 0 : plain_rows);
  std::printf("hist[b]++: every bucket between 1 and its bound: %s\n",
              plain_in_bounds ? "yes" : "NO");
  std::printf("in step:   every bucket between 1 and the model: %s\n",
              in_step.in_bounds ? "yes" : "NO");
  std::printf("atomicAdd: every bucket exact: %s\n", atomic_exact ? "yes" : "NO");
  std::printf("\nself-check: every bucket within its bound, and exact with atomicAdd: %s\n",
              correct ? "confirmed" : "MISMATCH");
  return correct ? 0 : 1;
}
