// SPDX-License-Identifier: MIT
//
// Kernels that follow the rules: every result must be right and nothing may be reported. Prints
// what is wrong, or "all right".
#include <cstdio>
#include <cstdlib>
#include <cub/cub.cuh>
#include <numeric>
#include <string>
#include <vector>

int failures = 0;
#define EXPECT(condition)                                          \
  do {                                                             \
    if (!(condition)) {                                            \
      std::printf("line %d is wrong: %s\n", __LINE__, #condition); \
      ++failures;                                                  \
    }                                                              \
  } while (0)

// A device array that is copied back when it is asked for.
template <class T>
struct Array {
  explicit Array(size_t n, T value = T{}) : host(n, value) {
    EXPECT(cudaMalloc(&device, n * sizeof(T)) == cudaSuccess);
    EXPECT(cudaMemcpy(device, host.data(), n * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    host = values;
    cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~Array() { cudaFree(device); }
  const std::vector<T>& get() {
    EXPECT(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost) ==
           cudaSuccess);
    return host;
  }
  T* device = nullptr;
  std::vector<T> host;
};

// ---- blocks of every size, in one to three dimensions

__global__ void reverseInBlock(const int* in, int* out) {
  extern __shared__ __align__(16) unsigned char s_bytes[];
  int* const s_values = reinterpret_cast<int*>(s_bytes);
  s_values[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = s_values[blockDim.x - 1 - threadIdx.x];
}

void testBlockSizes() {
  std::vector<int> numbers(1024);
  std::iota(numbers.begin(), numbers.end(), 0);
  Array<int> in(numbers), out(1024);
  for (int n : {1, 2, 31, 32, 33, 96, 255, 256, 1000, 1024}) {
    reverseInBlock<<<1, n, n * sizeof(int)>>>(in.device, out.device);
    const std::vector<int>& got = out.get();
    for (int i = 0; i < n; ++i) EXPECT(got[i] == n - 1 - i);
  }
}

__global__ void visitAll(int* out) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
  const unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
  const unsigned width = gridDim.x * blockDim.x, height = gridDim.y * blockDim.y;
  __syncthreads();
  out[(z * height + y) * width + x]++;
}

void testDimensions() {
  Array<int> out(4 * 8 * 6 * 5 * 4 * 3);
  visitAll<<<dim3(4, 6, 4), dim3(8, 5, 3)>>>(out.device);
  for (int visits : out.get()) EXPECT(visits == 1);
}

// ---- templates, lambdas, several launches in one statement

template <class T, int kStep>
__global__ void fill(T* out, T value, int n) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) * kStep;
  if (i < n) out[i] = value;
}

template <class F>
__global__ void apply(int* out, F f) {
  __shared__ int s_value;
  if (threadIdx.x == 0) s_value = 100;
  __syncthreads();
  out[threadIdx.x] = f(threadIdx.x) + s_value;
}

template <class Kernel>
void launchGiven(Kernel kernel, int* out) {
  kernel<<<1, 64>>>(out, 5, 64);
}

namespace nested {
__global__ void one(int* out) {
  *out = 1;
}
}  // namespace nested

void testTemplates() {
  Array<int> out(64);
  fill<int, 2><<<1, 64>>>(out.device, 7, 64);
  EXPECT(out.get()[62] == 7 && out.get()[63] == 0);
  fill<int, (3 > 2 ? 1 : 2)><<<dim3(2), dim3(32)>>>(  // a comment with <<< in it
      out.device, 1'000, 64);
  EXPECT(out.get()[63] == 1000);
  const int offset = 5;
  apply<<<1, 64>>>(out.device, [=] __device__(int i) { return i * 2 + offset; });
  EXPECT(out.get()[10] == 125);
  launchGiven(fill<int, 1>, out.device);
  EXPECT(out.get()[0] == 5);
  if (failures == 0) nested::one<<<1, 1>>>(out.device), ::nested::one<<<1, 1>>>(out.device + 1);
  EXPECT(out.get()[0] == 1 && out.get()[1] == 1);
}

// ---- barriers that count, early return

__global__ void countingBarriers(int* out) {
  const int odd = threadIdx.x % 2;
  const int count = __syncthreads_count(odd);
  const int all = __syncthreads_and(odd), any = __syncthreads_or(odd);
  const int second = __syncthreads_count(threadIdx.x < 10);
  if (threadIdx.x == 77) {
    out[0] = count;
    out[1] = all;
    out[2] = any;
    out[3] = second;
  }
}

__global__ void earlyReturn(unsigned* out, unsigned n) {
  if (threadIdx.x >= n) return;
  __syncthreads();
  atomicAdd(out, 1u);
}

void testBarriers() {
  Array<int> out(4);
  countingBarriers<<<1, 100>>>(out.device);
  EXPECT(out.get() == (std::vector<int>{50, 0, 1, 10}));
  Array<unsigned> count(1);
  earlyReturn<<<8, 256>>>(count.device, 100);
  EXPECT(count.get()[0] == 800);
}

// ---- warp functions

__global__ void warpFunctions(unsigned* out) {
  const unsigned lane = threadIdx.x % 32, all = 0xffffffffu;
  unsigned bad = 0;
  const auto expect = [&](bool ok, int bit) { bad |= ok ? 0u : 1u << bit; };
  expect(__shfl_sync(all, lane, 5) == 5, 0);
  expect(__shfl_sync(all, lane, 3, 8) == lane / 8 * 8 + 3, 1);
  expect(__shfl_up_sync(all, lane, 1) == (lane == 0 ? 0 : lane - 1), 2);
  expect(__shfl_up_sync(all, lane, 2, 8) == (lane % 8 < 2 ? lane : lane - 2), 3);
  expect(__shfl_down_sync(all, lane, 4) == (lane + 4 < 32 ? lane + 4 : lane), 4);
  expect(__shfl_down_sync(all, lane, 1, 4) == (lane % 4 == 3 ? lane : lane + 1), 5);
  expect(__shfl_xor_sync(all, 1.5 * lane, 16) == 1.5 * (lane ^ 16), 6);
  expect(__shfl_xor_sync(all, static_cast<long long>(lane) << 40, 1) ==
             static_cast<long long>(lane ^ 1) << 40,
         7);
  expect(__ballot_sync(all, lane % 3 == 0) == 0x49249249u, 8);
  expect(__any_sync(all, lane == 9) == 1 && __any_sync(all, 0) == 0, 9);
  expect(__all_sync(all, lane < 32) == 1 && __all_sync(all, lane != 9) == 0, 10);
  expect(__match_any_sync(all, lane % 4) == 0x11111111u << lane % 4, 11);
  int same = -1;
  expect(__match_all_sync(all, 7, &same) == all && same == 1, 12);
  expect(__match_all_sync(all, lane, &same) == 0 && same == 0, 13);
  expect(__reduce_add_sync(all, lane) == 496 && __reduce_max_sync(all, lane) == 31, 14);
  expect(__reduce_min_sync(all, 3 - static_cast<int>(lane)) == -28, 15);
  expect(__reduce_xor_sync(all, 1u << lane) == all && __reduce_and_sync(all, lane | 8) == 8, 16);
  expect(__activemask() == all, 17);
  if (lane < 12) {  // Halves with masks of their own may be in different functions.
    expect(__shfl_sync(0x00000fffu, lane, 3) == 3, 18);
    expect(__activemask() == 0x00000fffu, 19);
  } else {
    expect(__ballot_sync(0xfffff000u, 1) == 0xfffff000u, 20);
  }
  __syncwarp();
  out[threadIdx.x] = bad;
}

__global__ void partialWarp(int* out) {  // 40 threads: the second warp has 8 lanes
  out[threadIdx.x] = __popc(__ballot_sync(0xffffffffu, 1));
}

void testWarps() {
  Array<unsigned> out(96, 1);
  warpFunctions<<<1, 96>>>(out.device);
  for (unsigned bad : out.get()) EXPECT(bad == 0);
  Array<int> lanes(40);
  partialWarp<<<1, 40>>>(lanes.device);
  EXPECT(lanes.get()[0] == 32 && lanes.get()[39] == 8);
}

// ---- atomics

__global__ void atomics(int* i, unsigned* u, unsigned long long* l, float* f) {
  __shared__ unsigned s_count;
  if (threadIdx.x == 0) s_count = 0;
  __syncthreads();
  atomicAdd(&s_count, 2u);
  atomicAdd_block(&s_count, 1u);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd_system(u + 7, s_count);
  const int t = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(i, 3);
  atomicSub(i + 1, 1);
  atomicMin(i + 2, -t);
  atomicMax(i + 3, t);
  atomicAnd(u, ~(1u << t % 32));
  atomicOr(u + 1, 1u << t % 32);
  atomicXor(u + 2, 1u << t % 32);
  atomicInc(u + 3, 9u);
  atomicDec(u + 4, 9u);
  atomicAdd(l, 1ull << 33);
  atomicMax(l + 1, static_cast<unsigned long long>(t) << 40);
  atomicAdd(f, 0.5f);
  if (t == 5) {
    u[5] = atomicExch(u + 6, 42u);
    l[2] = atomicCAS(l + 3, 0ull, 17ull);
  }
}

// A lock that the threads of a block hand to one another.
__global__ void lock(unsigned* gate, unsigned* count) {
  while (atomicCAS(gate, 0u, 1u) != 0u) {
  }
  const unsigned seen = atomicAdd(count, 0u);
  __threadfence();
  atomicExch(count, seen + 1);
  atomicExch(gate, 0u);
}

void testAtomics() {
  Array<int> i(4);
  Array<unsigned> u(std::vector<unsigned>{~0u, 0, 0, 0, 0, 0, 9, 0});
  Array<unsigned long long> l(4);
  Array<float> f(1);
  atomics<<<4, 64>>>(i.device, u.device, l.device, f.device);
  EXPECT(i.get() == (std::vector<int>{768, -256, -255, 255}));
  EXPECT(u.get() == (std::vector<unsigned>{0, ~0u, 0, 6, 4, 9, 42, 768}));
  EXPECT(l.get() == (std::vector<unsigned long long>{256ull << 33, 255ull << 40, 0, 17}));
  EXPECT(f.get()[0] == 128);
  Array<unsigned> gate(2);
  lock<<<4, 64>>>(gate.device, gate.device + 1);
  EXPECT(gate.get()[0] == 0 && gate.get()[1] == 256);
}

// ---- bits and bytes, vectors, __device__ and __constant__ variables

__constant__ int c_table[4] = {1, 2, 3, 4};
__device__ int g_counter;

__global__ void bits(unsigned* out, const uint4* vectors) {
  unsigned bad = 0;
  const auto expect = [&](bool ok, int bit) { bad |= ok ? 0u : 1u << bit; };
  expect(__popc(0xf0f0u) == 8 && __popcll(~0ull) == 64, 0);
  expect(__clz(1) == 31 && __clz(0) == 32 && __clzll(1) == 63 && __clzll(0) == 64, 1);
  expect(__ffs(8) == 4 && __ffs(0) == 0 && __ffsll(1ll << 40) == 41, 2);
  expect(__brev(1u) == 0x80000000u && __brev(0x12345678u) == 0x1e6a2c48u, 3);
  expect(__byte_perm(0x33221100u, 0x77665544u, 0x7250u) == 0x77225500u, 4);
  expect(__byte_perm(0x00008000u, 0, 0x9999u) == 0xffffffffu, 5);
  expect(__funnelshift_l(0x80000000u, 1u, 4) == 0x18u, 6);
  expect(__funnelshift_r(0x80000000u, 1u, 4) == 0x18000000u, 7);
  expect(__dp4a(0x01020304, 0x01010101, 5) == 15, 8);
  expect(__dp4a(static_cast<int>(0xffffffffu), 0x01010101, 0) == -4, 9);
  expect(__dp4a(0xffffffffu, 0x01010101u, 0u) == 1020u, 10);
  expect(__umulhi(0x80000000u, 6u) == 3u && __mulhi(-1, 1) == -1, 11);
  expect(__vadd2(0xffff0001u, 0x00010001u) == 0x00000002u, 12);
  expect(__vcmpeq4(0x11223344u, 0x11003300u) == 0xff00ff00u, 13);
  expect(__vadd4(0xff010203u, 0x01010101u) == 0x00020304u, 14);
  const uint4 v = __ldg(vectors);
  expect(v.x == 1 && v.w == 4 && sizeof(uint4) == 16 && alignof(uint4) == 16, 15);
  expect(min(3, 4u) == 3u && max(-1, 2) == 2 && __ldcs(&vectors->y) == 2, 16);
  expect(c_table[threadIdx.x % 4] == static_cast<int>(10 * (threadIdx.x % 4)), 17);
  atomicAdd(&g_counter, 1);
  out[threadIdx.x] = bad;
}

void testBits() {
  const int table[4] = {0, 10, 20, 30}, zero = 0;
  EXPECT(cudaMemcpyToSymbol(c_table, table, sizeof(table)) == cudaSuccess);
  EXPECT(cudaMemcpyToSymbol(g_counter, &zero, sizeof(zero)) == cudaSuccess);
  EXPECT(cudaMemcpyToSymbol(g_counter, table, 8) == cudaErrorInvalidValue);
  cudaGetLastError();
  Array<unsigned> out(32, 1);
  Array<uint4> vectors(1, make_uint4(1, 2, 3, 4));
  bits<<<1, 32>>>(out.device, vectors.device);
  for (unsigned bad : out.get()) EXPECT(bad == 0);
  int count = 0;
  EXPECT(cudaMemcpyFromSymbol(&count, g_counter, sizeof(count)) == cudaSuccess && count == 32);
}

// ---- the host's side

void testHost() {
  cudaDeviceProp p;
  int count = 0, value = -1;
  EXPECT(cudaGetDeviceCount(&count) == cudaSuccess && count == 1);
  EXPECT(cudaGetDeviceProperties(&p, 0) == cudaSuccess && p.major == 0 && p.minor == 0);
  EXPECT(std::string(p.name).rfind("CPU (", 0) == 0);  // nobody is to take it for a GPU
  EXPECT(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0) == cudaSuccess && value == 32);
  EXPECT(cudaSetDevice(1) == cudaErrorInvalidDevice && cudaGetLastError() != cudaSuccess);
  Array<int> out(64);
  const auto launchError = [&](dim3 grid, dim3 block, size_t shared) {
    fill<int, 1><<<grid, block, shared>>>(out.device, 1, 64);
    const cudaError_t error = cudaGetLastError();
    EXPECT(cudaGetLastError() == cudaSuccess);
    return error;
  };
  EXPECT(launchError(1, 1024, 0) == cudaSuccess);
  EXPECT(launchError(1, 1025, 0) == cudaErrorInvalidConfiguration);
  EXPECT(launchError(1, 0, 0) == cudaErrorInvalidConfiguration);
  EXPECT(launchError(0, 32, 0) == cudaErrorInvalidConfiguration);
  EXPECT(launchError(dim3(1, 65536), 32, 0) == cudaErrorInvalidConfiguration);
  EXPECT(launchError(1, dim3(1, 1, 65), 0) == cudaErrorInvalidConfiguration);
  EXPECT(launchError(1, 32, 49 << 10) == cudaErrorInvalidValue);
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  EXPECT(cudaFuncSetAttribute(fill<int, 1>, attribute, 300 << 10) == cudaErrorInvalidValue);
  cudaGetLastError();
  EXPECT(cudaFuncSetAttribute(fill<int, 1>, attribute, 100 << 10) == cudaSuccess);
  EXPECT(launchError(1, 32, 100 << 10) == cudaSuccess);
  int blocks = 0;
  EXPECT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill<int, 1>, 256, 0) ==
             cudaSuccess &&
         blocks == 1);
  std::vector<int> host(64);
  EXPECT(cudaMemcpy(host.data(), out.device, 65 * 4, cudaMemcpyDeviceToHost) ==
         cudaErrorInvalidValue);
  EXPECT(cudaMemcpy(host.data(), host.data(), 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  EXPECT(std::string(cudaGetErrorString(cudaGetLastError())) == "invalid argument");
  EXPECT(std::string(cudaGetErrorName(cudaErrorNoDevice)) == "cudaErrorNoDevice");
  cudaEvent_t start, stop;
  cudaStream_t stream;
  float ms = -1;
  EXPECT(cudaEventCreate(&start) == cudaSuccess && cudaEventCreate(&stop) == cudaSuccess);
  EXPECT(cudaStreamCreate(&stream) == cudaSuccess && cudaEventRecord(start, stream) == cudaSuccess);
  fill<int, 1><<<1, 64, 0, stream>>>(out.device, 9, 64);
  EXPECT(cudaMemcpyAsync(host.data(), out.device, 256, cudaMemcpyDeviceToHost, stream) ==
             cudaSuccess &&
         host[63] == 9);
  EXPECT(cudaEventRecord(stop, stream) == cudaSuccess);
  EXPECT(cudaEventElapsedTime(&ms, start, stop) == cudaSuccess && ms > 0);
  EXPECT(cudaEventDestroy(start) == cudaSuccess && cudaEventDestroy(stop) == cudaSuccess);
  EXPECT(cudaStreamDestroy(stream) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
}

void testCub() {
  const std::vector<unsigned char> keys = {3, 1, 3, 0, 2, 1, 3, 0};
  const std::vector<unsigned> places = {0, 1, 2, 3, 4, 5, 6, 7};
  Array<unsigned char> in(keys), out(8);
  Array<unsigned> from(places), to(8), bins(4);
  Array<char> scratch(1);
  size_t bytes = 0;
  EXPECT(cub::DeviceRadixSort::SortPairs(nullptr, bytes, in.device, out.device, from.device,
                                         to.device, 8, 0, 2) == cudaSuccess &&
         bytes > 0);
  cub::DeviceRadixSort::SortPairs(scratch.device, bytes, in.device, out.device, from.device,
                                  to.device, 8, 0, 2);
  EXPECT(to.get() == (std::vector<unsigned>{3, 7, 1, 5, 4, 0, 2, 6}));
  cub::DeviceHistogram::HistogramEven(scratch.device, bytes, in.device, bins.device, 5, 0, 4, 8);
  EXPECT(bins.get() == (std::vector<unsigned>{2, 2, 1, 3}));
}

int main() {
  testBlockSizes();
  testDimensions();
  testTemplates();
  testBarriers();
  testWarps();
  testAtomics();
  testBits();
  testHost();
  testCub();
  std::puts(failures == 0 ? "all right" : "wrong");
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
