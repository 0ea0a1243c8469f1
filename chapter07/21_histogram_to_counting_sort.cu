// SPDX-License-Identifier: MIT
//
// 7.3  From histogram to counting sort
//
// Three kernels sort by key: a histogram counts, an exclusive scan turns the counts into the slot
// where each bucket starts, and a scatter hands each element the next slot of its bucket with
// atomicAdd on a cursor. A simulation on the host prints the lesson; it walks the data in order, so
// it is stable: equal keys keep their input order. On a GPU nothing defines the order in which
// threads reach the atomicAdd, so the kernels' output is sorted but not stable, and stderr says how
// far from it. A radix sort built on this scatter would be wrong; lesson 91 mends it.
//
// Build: nvcc -arch=sm_80 21_histogram_to_counting_sort.cu -o counting_sort
// Run:   ./counting_sort
// Stderr: device: {text}
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int NUM_BUCKETS = 8;
constexpr int N = 256;
constexpr int BLOCK_SIZE = 256;
constexpr int NUM_BLOCKS = (N + BLOCK_SIZE - 1) / BLOCK_SIZE;

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

// ---- The three kernels ------------------------------------------------------------------------
//
// Every key in g_data must lie in [0, NUM_BUCKETS). The grid-stride loops visit each index below n
// once, whatever the grid; they count in 64 bits, because the step past n may not fit into an int.

// Adds the number of keys of each bucket to g_hist, which must start from zero.
__global__ void histogram_kernel(const int* g_data, int* g_hist, int n) {
  const long long stride = 1LL * gridDim.x * blockDim.x;
  for (long long i = 1LL * blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    atomicAdd(&g_hist[g_data[i]], 1);
  }
}

// Launch it with one block of NUM_BUCKETS threads: thread b owns bucket b.
// This is the Hillis-Steele scan. After the step with distance d, entry b holds the sum of the 2 d
// counts that end at b, so log2(NUM_BUCKETS) steps give every entry the sum of all counts up to
// itself. That sum is inclusive; less the own count it is exclusive, the start of the bucket.
__global__ void exclusive_scan_offsets(const int* g_hist, int* g_offsets) {
  __shared__ int s_sum[NUM_BUCKETS];
  const int b = threadIdx.x;
  const int own_count = g_hist[b];
  s_sum[b] = own_count;
  __syncthreads();
  for (int distance = 1; distance < NUM_BUCKETS; distance *= 2) {
    // Only the read depends on b. Both barriers stand outside any branch, so all threads reach
    // them: the first keeps a neighbor from overwriting an entry that has still to be read, the
    // second keeps the next step from reading an entry that has still to be written.
    const int left_sum = b >= distance ? s_sum[b - distance] : 0;
    __syncthreads();
    s_sum[b] += left_sum;
    __syncthreads();
  }
  g_offsets[b] = s_sum[b] - own_count;
}

// g_cursor starts as a copy of the offsets. atomicAdd returns the value from before its addition,
// so no two threads ever get the same slot. Which of two equal keys gets the lower slot depends on
// which thread comes first, and that is not defined.
__global__ void scatter_counting_sort(const int* g_data, int* g_cursor, int* g_out_val,
                                      int* g_out_orig_idx, int n) {
  const long long stride = 1LL * gridDim.x * blockDim.x;
  for (long long i = 1LL * blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    const int key = g_data[i];
    const int slot = atomicAdd(&g_cursor[key], 1);
    g_out_val[slot] = key;
    g_out_orig_idx[slot] = static_cast<int>(i);
  }
}

// ---- The same three steps on the host, one element after the other -----------------------------

std::vector<int> simulate_histogram(const std::vector<int>& data) {
  std::vector<int> hist(NUM_BUCKETS, 0);
  for (int key : data) hist[key] += 1;
  return hist;
}

// The kernel's scan, step by step: each step reads the sums as the step before left them.
std::vector<int> simulate_exclusive_scan(const std::vector<int>& hist) {
  std::vector<int> sum = hist;
  for (int distance = 1; distance < NUM_BUCKETS; distance *= 2) {
    const std::vector<int> before = sum;
    for (int b = distance; b < NUM_BUCKETS; ++b) sum[b] = before[b] + before[b - distance];
  }
  for (int b = 0; b < NUM_BUCKETS; ++b) sum[b] -= hist[b];
  return sum;
}

struct SortedPairs {
  std::vector<int> values;
  std::vector<int> original_indices;
};

SortedPairs simulate_scatter(const std::vector<int>& data, const std::vector<int>& offsets) {
  std::vector<int> cursor = offsets;
  // -1 is no key and no index, so a slot that nothing was written to would show.
  SortedPairs out{std::vector<int>(data.size(), -1), std::vector<int>(data.size(), -1)};
  for (std::size_t i = 0; i < data.size(); ++i) {
    const int slot = cursor[data[i]]++;
    out.values[slot] = data[i];
    out.original_indices[slot] = static_cast<int>(i);
  }
  return out;
}

// ---- The kernels on the device, where there is one --------------------------------------------

struct CountsAndOffsets {
  std::vector<int> counts;
  std::vector<int> offsets;
};

// The new array holds -1 everywhere, so an entry that no kernel wrote shows. One entry more than
// asked for, because a request for 0 bytes would give no pointer.
int* poisoned_array(int size) {
  const std::size_t bytes = (static_cast<std::size_t>(size) + 1) * sizeof(int);
  int* g_array = nullptr;
  CUDA_CHECK(cudaMalloc(&g_array, bytes));
  CUDA_CHECK(cudaMemset(g_array, 0xff, bytes));
  return g_array;
}

std::vector<int> copy_to_host(const int* g_array, int size) {
  std::vector<int> host(size, -1);
  CUDA_CHECK(cudaMemcpy(host.data(), g_array, size * sizeof(int), cudaMemcpyDeviceToHost));
  return host;
}

// Both functions below work for any data, also none, and for any grid. A grid of zero blocks is not
// a valid launch, and it has nothing to do either, so it is left out.
CountsAndOffsets count_and_scan_on_device(const std::vector<int>& data, int num_blocks,
                                          int block_size) {
  const int n = static_cast<int>(data.size());
  int* g_data = poisoned_array(n);
  int* g_hist = poisoned_array(NUM_BUCKETS);
  int* g_offsets = poisoned_array(NUM_BUCKETS);
  CUDA_CHECK(cudaMemcpy(g_data, data.data(), data.size() * sizeof(int), cudaMemcpyHostToDevice));
  // The histogram adds to what is there, so this array alone must not keep its -1.
  CUDA_CHECK(cudaMemset(g_hist, 0, NUM_BUCKETS * sizeof(int)));

  if (num_blocks > 0) histogram_kernel<<<num_blocks, block_size>>>(g_data, g_hist, n);
  CUDA_CHECK(cudaGetLastError());
  exclusive_scan_offsets<<<1, NUM_BUCKETS>>>(g_hist, g_offsets);
  CUDA_CHECK(cudaGetLastError());
  CUDA_CHECK(cudaDeviceSynchronize());

  const CountsAndOffsets result{copy_to_host(g_hist, NUM_BUCKETS),
                                copy_to_host(g_offsets, NUM_BUCKETS)};
  for (int* g_array : {g_data, g_hist, g_offsets}) CUDA_CHECK(cudaFree(g_array));
  return result;
}

// The offsets must be right for this data: the scatter writes wherever they send it.
SortedPairs scatter_on_device(const std::vector<int>& data, const std::vector<int>& offsets,
                              int num_blocks, int block_size) {
  const int n = static_cast<int>(data.size());
  int* g_data = poisoned_array(n);
  int* g_cursor = poisoned_array(NUM_BUCKETS);
  int* g_out_val = poisoned_array(n);
  int* g_out_orig_idx = poisoned_array(n);
  CUDA_CHECK(cudaMemcpy(g_data, data.data(), data.size() * sizeof(int), cudaMemcpyHostToDevice));
  CUDA_CHECK(
      cudaMemcpy(g_cursor, offsets.data(), NUM_BUCKETS * sizeof(int), cudaMemcpyHostToDevice));

  if (num_blocks > 0) {
    scatter_counting_sort<<<num_blocks, block_size>>>(g_data, g_cursor, g_out_val, g_out_orig_idx,
                                                      n);
  }
  CUDA_CHECK(cudaGetLastError());
  CUDA_CHECK(cudaDeviceSynchronize());

  const SortedPairs result{copy_to_host(g_out_val, n), copy_to_host(g_out_orig_idx, n)};
  for (int* g_array : {g_data, g_cursor, g_out_val, g_out_orig_idx}) CUDA_CHECK(cudaFree(g_array));
  return result;
}

// ---- Checks -----------------------------------------------------------------------------------

// The reference for counts and offsets: counts by the library, offsets by a running total.
bool ranges_are_exact(const std::vector<int>& data, const std::vector<int>& counts,
                      const std::vector<int>& offsets, const std::vector<int>& values) {
  int start = 0;
  for (int b = 0; b < NUM_BUCKETS; ++b) {
    const int end = start + static_cast<int>(std::count(data.begin(), data.end(), b));
    if (counts[b] != end - start || offsets[b] != start) return false;
    for (int slot = start; slot < end; ++slot) {
      if (values[slot] != b) return false;
    }
    start = end;
  }
  return true;
}

// Every element of the input is in the output exactly once, and beside its own key.
bool is_permutation_of_input(const std::vector<int>& data, const SortedPairs& out) {
  std::vector<bool> seen(data.size(), false);
  for (std::size_t slot = 0; slot < data.size(); ++slot) {
    const int original = out.original_indices[slot];
    if (original < 0 || original >= static_cast<int>(data.size()) || seen[original]) return false;
    if (data[original] != out.values[slot]) return false;
    seen[original] = true;
  }
  return true;
}

// Pairs of neighbors with equal keys. There can be no more inversions than this: where two keys
// differ, the keys alone say which comes first.
int count_equal_neighbors(const SortedPairs& out) {
  int pairs = 0;
  for (std::size_t slot = 1; slot < out.values.size(); ++slot) {
    pairs += out.values[slot - 1] == out.values[slot];
  }
  return pairs;
}

// Neighbors with equal keys that stand in the reverse of their input order. A stable sort has none.
// The keys alone cannot show this; it takes the original indices.
int count_inversions(const SortedPairs& out) {
  int inversions = 0;
  for (std::size_t slot = 1; slot < out.values.size(); ++slot) {
    const bool equal_keys = out.values[slot - 1] == out.values[slot];
    inversions += equal_keys && out.original_indices[slot - 1] > out.original_indices[slot];
  }
  return inversions;
}

// Names every entry that differs on stderr.
bool same_entries(const char* kernel, const char* entry, const std::vector<int>& got,
                  const std::vector<int>& want) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i] == want[i]) continue;
    std::fprintf(stderr, "device: %s: %s %zu: got %d, want %d\n", kernel, entry, i, got[i],
                 want[i]);
  }
  return got == want;
}

// What the scatter must get right on the device: sorted keys, and every element exactly once. The
// order among equal keys is not part of it, because the kernel does not define that order.
bool device_scatter_is_right(const std::vector<int>& data, const SortedPairs& got,
                             const SortedPairs& simulated) {
  if (!same_entries("scatter_counting_sort", "slot", got.values, simulated.values)) return false;
  if (is_permutation_of_input(data, got)) return true;
  std::fprintf(stderr, "device: scatter_counting_sort: an original index is wrong or missing\n");
  return false;
}

// Says on stderr what ran. No device is no failure: the simulation alone prints the lesson.
bool device_agrees(const std::vector<int>& data, const CountsAndOffsets& simulated,
                   const SortedPairs& simulated_sort) {
  cudaDeviceProp device;
  const char* why = "";
  if (!findDevice(&device, &why)) {
    std::fprintf(stderr, "device: none found (%s): kernels not run, host simulation only\n", why);
    return true;
  }
  const CountsAndOffsets got = count_and_scan_on_device(data, NUM_BLOCKS, BLOCK_SIZE);
  bool agrees = same_entries("histogram_kernel", "bucket", got.counts, simulated.counts) &&
                same_entries("exclusive_scan_offsets", "bucket", got.offsets, simulated.offsets);
  SortedPairs got_sort;
  if (agrees) {
    got_sort = scatter_on_device(data, got.offsets, NUM_BLOCKS, BLOCK_SIZE);
    agrees = device_scatter_is_right(data, got_sort, simulated_sort);
  }
  std::fprintf(stderr, "device: %s, compute capability %d.%d: ", device.name, device.major,
               device.minor);
  if (!agrees) {
    std::fprintf(stderr, "MISMATCH with the simulation\n");
    return false;
  }
  std::fprintf(stderr,
               "all three kernels match the simulation; the scatter promises no order among equal "
               "keys: %d of the %d pairs of neighbors with equal keys are out of input order\n",
               count_inversions(got_sort), count_equal_neighbors(got_sort));
  return true;
}

// ---- The lesson -------------------------------------------------------------------------------

void print_table(const std::vector<int>& counts, const std::vector<int>& offsets) {
  std::printf("bucket   count    offset    \n");
  for (int b = 0; b < NUM_BUCKETS; ++b) std::printf("%-9d%-9d%-10d\n", b, counts[b], offsets[b]);
}

void print_first(const char* label, const std::vector<int>& entries) {
  std::printf("%-29s", label);
  for (int i = 0; i < 16; ++i) std::printf("%d ", entries[i]);
  std::printf("\n");
}

void print_lesson() {
  std::printf("this is counting sort: Section 7.1's histogram counted, Chapter 5.2's exclusive\n");
  std::printf("scan turned counts into offsets, and Section 7.1's atomicAdd -- reused here to\n");
  std::printf("hand out unique positions instead of counting occurrences -- placed every\n");
  std::printf("element directly into fully sorted order. Part 3's radix sort is this exact\n");
  std::printf("recipe, run once per digit.\n\n");
}

int main() {
  std::vector<int> data(N);
  for (int i = 0; i < N; ++i) data[i] = (i * 31 + 17) % NUM_BUCKETS;

  const std::vector<int> counts = simulate_histogram(data);
  const std::vector<int> offsets = simulate_exclusive_scan(counts);
  const SortedPairs sorted = simulate_scatter(data, offsets);
  const bool device_ok = device_agrees(data, {counts, offsets}, sorted);

  const bool sorted_ok = std::is_sorted(sorted.values.begin(), sorted.values.end());
  const bool ranges_ok = ranges_are_exact(data, counts, offsets, sorted.values);
  const bool stable_ok = is_permutation_of_input(data, sorted) && count_inversions(sorted) == 0;

  std::printf("=== Section 7.3: histogram + scan = counting sort ===\n\n");
  std::printf("N = %d elements, keys in [0, %d)\n\n", N, NUM_BUCKETS);
  print_table(counts, offsets);
  std::printf("\n");
  print_first("first 16 output values:", sorted.values);
  print_first("first 16 original indices:", sorted.original_indices);
  std::printf("\noutput is fully sorted by key: %s\n", sorted_ok ? "yes" : "NO");
  std::printf("every bucket occupies exactly its [offset, offset+count) range: %s\n",
              ranges_ok ? "yes" : "NO");
  std::printf("within each bucket, original relative order is preserved (stable): %s\n\n",
              stable_ok ? "yes" : "NO");
  print_lesson();

  const bool correct = sorted_ok && ranges_ok && stable_ok && device_ok;
  std::printf("self-check: sorted, correctly ranged, and stable: %s\n",
              correct ? "confirmed" : "MISMATCH");
  return correct ? 0 : 1;
}
