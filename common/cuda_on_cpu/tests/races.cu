// SPDX-License-Identifier: MIT
//
// Kernels for --sanitize thread. The first ones race, each in its own way; the last ones do not.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

constexpr int kThreads = 64;
constexpr int kBins = 16;

// ---- with a race

__global__ void missingBarrier(const int* in, int* out) {
  __shared__ int s_values[kThreads];
  s_values[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = s_values[kThreads - 1 - threadIdx.x];
}

// Right by luck as long as the threads run in order.
__global__ void missingBarrierLeft(const int* in, int* out) {
  __shared__ int s_values[kThreads];
  s_values[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = threadIdx.x > 0 ? s_values[threadIdx.x - 1] : 0;
}

__global__ void countShared(const int* in, int* out) {
  __shared__ int s_bins[kBins];
  if (threadIdx.x < kBins) s_bins[threadIdx.x] = 0;
  __syncthreads();
  s_bins[in[threadIdx.x] % kBins]++;
  __syncthreads();
  if (threadIdx.x < kBins) atomicAdd(&out[threadIdx.x], s_bins[threadIdx.x]);
}

__global__ void countGlobal(const int* in, int* out) {
  out[in[threadIdx.x] % kBins]++;
}

__global__ void countBetweenBlocks(int* out) {  // One thread a block, so only blocks race.
  if (threadIdx.x == 0) out[0]++;
}

__global__ void countVolatile(volatile int* out) {
  out[0] = out[0] + 1;
}

// Lockstep was never promised: a warp function orders no memory.
__global__ void shuffleIsNoBarrier(int* out) {
  __shared__ int s_values[32];
  s_values[threadIdx.x] = threadIdx.x;
  const int other = __shfl_xor_sync(0xffffffffu, static_cast<int>(threadIdx.x), 1);
  out[threadIdx.x] = s_values[other];
}

// ---- without

__global__ void withBarrier(const int* in, int* out) {
  __shared__ int s_values[kThreads];
  s_values[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  for (unsigned k = kThreads / 2; k > 0; k /= 2) {
    if (threadIdx.x < k) s_values[threadIdx.x] += s_values[threadIdx.x + k];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, s_values[0]);
}

// Warp 0 adds up what the warps have left.
__global__ void warpReduce(const int* in, int* out) {
  __shared__ int s_partial[kThreads / 32];
  int v = in[threadIdx.x];
  for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);  // line: gdb
  if (threadIdx.x % 32 == 0) s_partial[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x < 32) {
    v = threadIdx.x < kThreads / 32 ? s_partial[threadIdx.x] : 0;
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
    if (threadIdx.x == 0) atomicAdd(out, v);
  }
}

__global__ void earlyReturn(const int* in, int* out, int n) {
  __shared__ int s_values[kThreads];
  if (static_cast<int>(threadIdx.x) >= n) return;
  s_values[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  atomicAdd(out, s_values[n - 1 - threadIdx.x]);
}

__global__ void syncWarp(int* out) {
  __shared__ int s_values[kThreads];
  s_values[threadIdx.x] = threadIdx.x;
  __syncwarp();
  out[threadIdx.x] = s_values[threadIdx.x ^ 1];
}

// The last block to take a ticket adds up what all have written.
__global__ void lastBlock(int* parts, unsigned* ticket, int* out) {
  __shared__ bool s_last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = blockIdx.x + 1;
    __threadfence();
    s_last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (s_last && threadIdx.x == 0) {
    int sum = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) sum += parts[b];
    *out = sum;
  }
}

// Each block waits for the one before it, by a flag that is read again and again.
__global__ void lookBack(volatile int* status, int* out) {
  if (threadIdx.x == 0) {
    int before = 1;
    if (blockIdx.x > 0) {
      do {
        before = status[blockIdx.x - 1];
      } while (before == 0);
    }
    status[blockIdx.x] = before + 1;
    if (blockIdx.x == gridDim.x - 1) *out = before;
  }
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
  const auto is = [name](const char* other) { return std::strcmp(name, other) == 0; };
  int h_in[kThreads], h_out[kThreads] = {};
  for (int i = 0; i < kThreads; ++i) h_in[i] = i;
  int *d_in, *d_out, *d_parts;
  unsigned* d_ticket;
  cudaMalloc(&d_in, sizeof(h_in));
  cudaMalloc(&d_out, sizeof(h_out));
  cudaMalloc(&d_parts, sizeof(h_out));
  cudaMalloc(&d_ticket, sizeof(unsigned));
  cudaMemcpy(d_in, h_in, sizeof(h_in), cudaMemcpyHostToDevice);
  cudaMemset(d_out, 0, sizeof(h_out));
  cudaMemset(d_parts, 0, sizeof(h_out));
  cudaMemset(d_ticket, 0, sizeof(unsigned));
  if (is("missing_barrier")) missingBarrier<<<1, kThreads>>>(d_in, d_out);
  if (is("missing_barrier_left")) missingBarrierLeft<<<1, kThreads>>>(d_in, d_out);
  if (is("count_shared")) countShared<<<2, kThreads>>>(d_in, d_out);
  if (is("count_global")) countGlobal<<<1, kThreads>>>(d_in, d_out);
  if (is("count_between_blocks")) countBetweenBlocks<<<2, 32>>>(d_out);
  if (is("count_volatile")) countVolatile<<<1, 32>>>(d_out);
  if (is("shuffle_is_no_barrier")) shuffleIsNoBarrier<<<1, 32>>>(d_out);
  if (is("with_barrier")) withBarrier<<<16, kThreads>>>(d_in, d_out);
  if (is("warp_reduce")) warpReduce<<<16, kThreads>>>(d_in, d_out);
  if (is("early_return")) earlyReturn<<<4, kThreads>>>(d_in, d_out, 50);
  if (is("sync_warp")) syncWarp<<<1, kThreads>>>(d_out);
  if (is("last_block")) lastBlock<<<16, 32>>>(d_parts, d_ticket, d_out);
  if (is("look_back")) lookBack<<<16, 32>>>(d_parts, d_out);
  cudaMemcpy(h_out, d_out, sizeof(h_out), cudaMemcpyDeviceToHost);
  std::printf("finished: %d %d\n", h_out[0], h_out[2]);
}
