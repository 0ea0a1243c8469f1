// SPDX-License-Identifier: MIT
//
// What running a kernel on the CPU costs: day 29's byte histogram on one worker, against the same
// accesses in the same order in plain loops, and against an OS thread for each CUDA thread. Prints
// a name and CPU seconds a line, the best of several rounds; run.py makes a table of them.
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#ifndef BENCHMARK_BYTES
#define BENCHMARK_BYTES (64u * 1024 * 1024)
#endif
constexpr std::size_t kBytes = BENCHMARK_BYTES;
constexpr int kBlocks = 1024, kThreads = 256, kBins = 256;
constexpr int kRounds = 5;
constexpr std::size_t kStride = std::size_t{kBlocks} * kThreads;

using Bins = std::vector<unsigned int>;

__global__ void histogramPrivate(const unsigned char* input, std::size_t size, unsigned int* bins) {
  __shared__ unsigned int s_bins[kBins];
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) s_bins[bin] = 0;
  __syncthreads();
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += stride) {
    atomicAdd(&s_bins[input[i]], 1u);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) atomicAdd(&bins[bin], s_bins[bin]);
}

void plainLoops(const unsigned char* input, unsigned int* bins) {
  for (int block = 0; block < kBlocks; ++block) {
    unsigned int s_bins[kBins] = {};
    for (int thread = 0; thread < kThreads; ++thread) {
      for (std::size_t i = std::size_t(block) * kThreads + thread; i < kBytes; i += kStride) {
        s_bins[input[i]]++;
      }
    }
    for (int bin = 0; bin < kBins; ++bin) bins[bin] += s_bins[bin];
  }
}

// The obvious way: as many OS threads as a block has threads, and the system's barrier.
void osThreads(const unsigned char* input, unsigned int* bins) {
  static unsigned int s_bins[kBins];
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, nullptr, kThreads);
  const auto work = [&](int thread) {
    for (int block = 0; block < kBlocks; ++block) {
      for (int bin = thread; bin < kBins; bin += kThreads) s_bins[bin] = 0;
      pthread_barrier_wait(&barrier);
      for (std::size_t i = std::size_t(block) * kThreads + thread; i < kBytes; i += kStride) {
        __atomic_fetch_add(&s_bins[input[i]], 1u, __ATOMIC_RELAXED);
      }
      pthread_barrier_wait(&barrier);
      for (int bin = thread; bin < kBins; bin += kThreads) bins[bin] += s_bins[bin];
      pthread_barrier_wait(&barrier);
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
  pthread_barrier_destroy(&barrier);
}

// CPU time, not time on the wall, so that what else the machine does counts less.
double cpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

template <class F>
void measure(F run, double* best) {
  const double start = cpuSeconds();
  run();
  *best = std::min(*best, cpuSeconds() - start);
}

int main() {
  std::vector<unsigned char> input(kBytes);
  unsigned int state = 12345;
  for (unsigned char& byte : input) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<unsigned char>(state >> 24);
  }
  unsigned char* d_input;
  unsigned int* d_bins;
  if (cudaMalloc(&d_input, kBytes) != cudaSuccess) return EXIT_FAILURE;
  if (cudaMalloc(&d_bins, kBins * sizeof(unsigned int)) != cudaSuccess) return EXIT_FAILURE;
  cudaMemcpy(d_input, input.data(), kBytes, cudaMemcpyHostToDevice);
  cudaMemset(d_bins, 0, kBins * sizeof(unsigned int));

  // All read the same memory, or pages of another size would decide. In turn, so that a slow moment
  // of the machine does not hit only one of them.
  double kernel = 1e9, plain = 1e9, os_threads = 1e9;
  Bins h_kernel(kBins), h_plain(kBins), h_os_threads(kBins);
  for (int round = 0; round < kRounds; ++round) {
    measure([&] { histogramPrivate<<<kBlocks, kThreads>>>(d_input, kBytes, d_bins); }, &kernel);
    measure([&] { plainLoops(d_input, h_plain.data()); }, &plain);
    measure([&] { osThreads(d_input, h_os_threads.data()); }, &os_threads);
  }
  cudaMemcpy(h_kernel.data(), d_bins, kBins * sizeof(unsigned int), cudaMemcpyDeviceToHost);
  if (h_kernel != h_plain || h_kernel != h_os_threads) {
    std::fprintf(stderr, "the three histograms differ\n");
    return EXIT_FAILURE;
  }
  std::printf("plain %.4f\nkernel %.4f\nos_threads %.4f\n", plain, kernel, os_threads);
}
