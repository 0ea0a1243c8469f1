// SPDX-License-Identifier: MIT
//
// Faults on purpose, one for each tool of compute-sanitizer, and a run without a fault. A tool that
// does not find its own would call every lesson clean.
//
//     ./planted_faults memcheck | racecheck | initcheck | synccheck | clean
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

constexpr int kThreads = 64;

__global__ void writeBehindTheEnd(int* out, int n) {
  out[threadIdx.x + n] = 1;
}

__global__ void readANeighborsWordTooEarly(int* out) {
  __shared__ int words[kThreads];
  words[threadIdx.x] = static_cast<int>(threadIdx.x);
  // A barrier is missing here: the word belongs to a thread of the other warp.
  out[threadIdx.x] = words[(threadIdx.x + 32) % kThreads];
}

__global__ void copyWhatNobodyWrote(const int* in, int* out) {
  out[threadIdx.x] = in[threadIdx.x];
}

__global__ void waitWithHalfTheWarp(int* out, int n) {
  __shared__ int words[kThreads];
  words[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (static_cast<int>(threadIdx.x) < n) __syncthreads();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int i = 0; i < n; ++i) sum += words[i];
    out[0] = sum;
  }
}

__global__ void noFault(int* out) {
  __shared__ int words[kThreads];
  words[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = words[(threadIdx.x + 32) % kThreads];
}

int main(int argc, char** argv) {
  const char* which = argc == 2 ? argv[1] : "";
  int* in = nullptr;
  int* out = nullptr;
  if (cudaMalloc(&in, kThreads * sizeof(int)) != cudaSuccess ||
      cudaMalloc(&out, kThreads * sizeof(int)) != cudaSuccess) {
    std::fprintf(stderr, "no memory on the device: %s\n", cudaGetErrorString(cudaGetLastError()));
    return 1;
  }
  if (!std::strcmp(which, "memcheck")) {
    writeBehindTheEnd<<<1, kThreads>>>(out, kThreads);
  } else if (!std::strcmp(which, "racecheck")) {
    readANeighborsWordTooEarly<<<1, kThreads>>>(out);
  } else if (!std::strcmp(which, "initcheck")) {
    copyWhatNobodyWrote<<<1, kThreads>>>(in, out);
  } else if (!std::strcmp(which, "synccheck")) {
    waitWithHalfTheWarp<<<1, kThreads>>>(out, 16);
  } else if (!std::strcmp(which, "clean")) {
    noFault<<<1, kThreads>>>(out);
  } else {
    std::fprintf(stderr, "name one fault\n");
    return 2;
  }
  const bool ran = cudaGetLastError() == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
  cudaFree(in);
  cudaFree(out);
  return ran ? 0 : 1;
}
