// SPDX-License-Identifier: MIT
//
// Prints what the recorder of evidence must know of the GPU at hand, one `key: value` a line.
// Clocks are asked for as attributes, because cudaDeviceProp has none from CUDA 13 on.
// Exit status: 0, or 77 when there is no GPU, or 1 for any other error.
#include <cuda_runtime.h>

#include <cstdio>

static int attribute(cudaDeviceAttr which) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, 0) == cudaSuccess ? value : 0;
}

int main() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ||
      (error == cudaSuccess && count == 0)) {
    std::fprintf(stderr, "no GPU: %s\n",
                 error == cudaSuccess ? "the device count is 0" : cudaGetErrorString(error));
    return 77;
  }
  cudaDeviceProp properties;
  int runtime = 0;
  int driver = 0;
  if (error != cudaSuccess || cudaGetDeviceProperties(&properties, 0) != cudaSuccess ||
      cudaRuntimeGetVersion(&runtime) != cudaSuccess ||
      cudaDriverGetVersion(&driver) != cudaSuccess) {
    std::fprintf(stderr, "the GPU cannot be asked: %s\n", cudaGetErrorString(cudaGetLastError()));
    return 1;
  }
  std::printf("gpu: %s\n", properties.name);
  std::printf("compute capability: %d.%d\n", properties.major, properties.minor);
  std::printf("SM count: %d\n", properties.multiProcessorCount);
  std::printf("L2 bytes: %d\n", properties.l2CacheSize);
  std::printf("ECC: %s\n", attribute(cudaDevAttrEccEnabled) ? "on" : "off");
  std::printf("SM clock kHz: %d\n", attribute(cudaDevAttrClockRate));
  std::printf("memory clock kHz: %d\n", attribute(cudaDevAttrMemoryClockRate));
  std::printf("memory bus bits: %d\n", attribute(cudaDevAttrGlobalMemoryBusWidth));
  std::printf("memory bytes: %zu\n", properties.totalGlobalMem);
  std::printf("runtime: CUDA %d.%d\n", runtime / 1000, runtime % 1000 / 10);
  std::printf("driver: supports CUDA %d.%d\n", driver / 1000, driver % 1000 / 10);
  return 0;
}
