// SPDX-License-Identifier: MIT
//
// Kernels that break a rule; the name of the case is the argument. tools/tests/test_cuda_on_cpu.py
// looks for the message, and for the line marked with the case's name.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

constexpr int kThreads = 64;

// ---- barriers and warp functions

__global__ void divergentBarrier(int* out) {
  if (threadIdx.x < 32) {
    __syncthreads();  // line: divergent_barrier
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}

__global__ void deadlock(int* out) {
  if (threadIdx.x < 40) __syncthreads();  // line: deadlock
  out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
}

__global__ void lanesMissing(int* out) {
  int v = threadIdx.x;
  if (v % 32 < 8) v = __shfl_down_sync(0xffffffffu, v, 4);  // line: lanes_missing
  __syncthreads();
  out[threadIdx.x] = v;
}

__global__ void wrongMask(int* out) {
  out[threadIdx.x] = __ballot_sync(0x1u, 1);  // line: wrong_mask
}

__global__ void mismatchedFunctions(int* out) {
  if (threadIdx.x % 32 < 16) {
    out[threadIdx.x] = __any_sync(0xffffffffu, 1);
  } else {
    out[threadIdx.x] = __all_sync(0xffffffffu, 1);  // line: mismatched_functions
  }
}

__global__ void lockNeverFreed(unsigned* lock) {
  while (atomicCAS(lock, 0u, 1u) != 0u) {  // line: lock_never_freed
  }
}

__global__ void flagNeverSet(volatile int* flag) {
  while (*flag == 0) {
  }
}

// ---- memory

__global__ void writeAt(int* out, int offset) {
  if (threadIdx.x == 5) out[offset] = 1;  // line: write_at
}

struct Box {
  int* inside;
};
__global__ void writeInBox(Box box) {
  box.inside[threadIdx.x] = 1;
}  // line: write_in_box

__global__ void staticShared(int* out, int offset) {
  __shared__ int s_values[kThreads];
  __shared__ int s_others[kThreads];
  s_others[threadIdx.x] = 0;
  s_values[threadIdx.x + offset] = threadIdx.x;  // line: static_shared
  __syncthreads();
  out[threadIdx.x] = s_values[threadIdx.x] + s_others[threadIdx.x];
}

__global__ void dynamicShared(int* out) {
  extern __shared__ int s_values[];
  s_values[threadIdx.x] = threadIdx.x;  // line: dynamic_shared
  __syncthreads();
  out[threadIdx.x] = s_values[threadIdx.x];
}

__global__ void unsetShared(int* out) {
  __shared__ int s_count;
  atomicAdd(&s_count, 1);  // line: unset_shared
  __syncthreads();
  out[threadIdx.x] = s_count;
}

__global__ void unsetSharedRead(int* out) {
  __shared__ int s_values[kThreads];
  if (out == nullptr) s_values[threadIdx.x] = 1;
  out[threadIdx.x] = s_values[threadIdx.x];
}

__device__ int deep(int n) {
  volatile char frame[1024];
  frame[n % 1024] = static_cast<char>(n);
  return n > 0 ? deep(n - 1) + frame[0] : 0;  // line: stack_overflow
}

__global__ void stackOverflow(int* out, int n) {
  out[threadIdx.x] = deep(n);
}

__global__ void trapped(int* out) {
  if (out[threadIdx.x] != 0x12345678) __trap();  // line: trap
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
  const auto is = [name](const char* other) { return std::strcmp(name, other) == 0; };
  constexpr int kBytes = kThreads * sizeof(int);
  int *d_out, *d_zero;
  cudaMalloc(&d_out, kBytes);
  cudaMalloc(&d_zero, kBytes);
  cudaMemset(d_zero, 0, kBytes);
  int h_out[kThreads] = {};
  if (is("divergent_barrier")) divergentBarrier<<<2, kThreads>>>(d_out);
  if (is("deadlock")) deadlock<<<1, kThreads>>>(d_out);
  if (is("lanes_missing")) lanesMissing<<<1, kThreads>>>(d_out);
  if (is("wrong_mask")) wrongMask<<<1, 32>>>(d_out);
  if (is("mismatched_functions")) mismatchedFunctions<<<1, 32>>>(d_out);
  if (is("lock_never_freed")) lockNeverFreed<<<1, 32>>>(reinterpret_cast<unsigned*>(d_zero));
  if (is("flag_never_set")) flagNeverSet<<<2, 32>>>(d_zero);
  if (is("global_after")) writeAt<<<3, 32>>>(d_out, kThreads);
  if (is("global_before")) writeAt<<<1, 32>>>(d_out, -1);
  if (is("static_shared")) staticShared<<<1, kThreads>>>(d_out, 1);
  if (is("dynamic_shared")) dynamicShared<<<1, kThreads, kBytes / 2>>>(d_out);
  if (is("unset_shared")) unsetShared<<<1, kThreads>>>(d_out);
  if (is("unset_shared_read")) unsetSharedRead<<<1, kThreads>>>(d_out);
  if (is("stack_overflow")) stackOverflow<<<1, 32>>>(d_out, 2000);
  if (is("trap")) trapped<<<1, 32>>>(d_out);
  if (is("host_pointer")) writeAt<<<1, 32>>>(h_out, 0);  // line: host_pointer
  if (is("freed")) {
    cudaFree(d_out);
    writeAt<<<1, 32>>>(d_out, 0);  // line: freed
    return 0;
  }
  if (is("freed_inside")) {  // The pointer is inside an argument: only the access itself can tell.
    cudaFree(d_out);
    writeInBox<<<1, 32>>>(Box{d_out});
    return 0;
  }
  if (is("host_touches")) std::printf("%d\n", d_out[3]);  // line: host_touches
  cudaMemcpy(h_out, d_out, kBytes, cudaMemcpyDeviceToHost);
  std::printf("finished: %08x\n", static_cast<unsigned>(h_out[0]));
}
