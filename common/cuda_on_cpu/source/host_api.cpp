// SPDX-License-Identifier: MIT
//
// Errors, the device, streams and events.
#include "cuda_on_cpu/host_api.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "host_state.h"
#include "options.h"
#include "worker.h"

using cuda_on_cpu::options;
using cuda_on_cpu::setLastError;

struct CUevent_st {
  bool recorded = false;
  std::chrono::steady_clock::time_point time;
};
struct CUstream_st {
  int unused = 0;
};

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
#define CUDA_ON_CPU_ERROR(name, text) \
  { name, #name, text }
const ErrorText kErrorTexts[] = {
    CUDA_ON_CPU_ERROR(cudaSuccess, "no error"),
    CUDA_ON_CPU_ERROR(cudaErrorInvalidValue, "invalid argument"),
    CUDA_ON_CPU_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    CUDA_ON_CPU_ERROR(cudaErrorInitializationError, "initialization error"),
    CUDA_ON_CPU_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    CUDA_ON_CPU_ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    CUDA_ON_CPU_ERROR(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    CUDA_ON_CPU_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    CUDA_ON_CPU_ERROR(cudaErrorInsufficientDriver,
                      "CUDA driver version is insufficient for CUDA runtime version"),
    CUDA_ON_CPU_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    CUDA_ON_CPU_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    CUDA_ON_CPU_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    CUDA_ON_CPU_ERROR(cudaErrorNoKernelImageForDevice,
                      "no kernel image is available for execution on the device"),
    CUDA_ON_CPU_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    CUDA_ON_CPU_ERROR(cudaErrorNotReady, "device not ready"),
    CUDA_ON_CPU_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    CUDA_ON_CPU_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    CUDA_ON_CPU_ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    CUDA_ON_CPU_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    CUDA_ON_CPU_ERROR(cudaErrorNotSupported, "operation not supported"),
    CUDA_ON_CPU_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef CUDA_ON_CPU_ERROR

const ErrorText* findText(cudaError_t error) {
  for (const ErrorText& entry : kErrorTexts) {
    if (entry.error == error) return &entry;
  }
  return nullptr;
}

thread_local cudaError_t last_error = cudaSuccess;
std::size_t dynamic_shared_limit = 48 << 10;

std::size_t physicalMemory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

int lastLevelCache() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return static_cast<int>(std::min(bytes, 0x7fffffffL));
#endif
  return 0;
}

}  // namespace

namespace cuda_on_cpu {

cudaError_t setLastError(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

std::size_t dynamicSharedLimit() {
  return dynamic_shared_limit;
}

cudaError_t setDynamicSharedLimit(int bytes) {
  if (bytes < 0 || static_cast<std::size_t>(bytes) > kMostDynamicShared) {
    return setLastError(cudaErrorInvalidValue);
  }
  dynamic_shared_limit = std::max(dynamic_shared_limit, static_cast<std::size_t>(bytes));
  return cudaSuccess;
}

}  // namespace cuda_on_cpu

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* entry = findText(error);
  return entry != nullptr ? entry->name : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* entry = findText(error);
  return entry != nullptr ? entry->text : "unrecognized error code";
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}

// ---- the device

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : setLastError(cudaErrorInvalidDevice);
}

// Compute capability 0.0, so that nobody takes its times for a GPU's.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return setLastError(cudaErrorInvalidDevice);
  const int workers = static_cast<int>(options().workers);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "CPU (%d worker%s)", workers,
                workers == 1 ? "" : "s");
  properties->multiProcessorCount = workers;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = properties->maxThreadsPerMultiProcessor = 1024;
  properties->maxBlocksPerMultiProcessor = 1;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = cuda_on_cpu::kMostDynamicShared;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  properties->reservedSharedMemPerBlock = 1 << 10;
  properties->totalGlobalMem = physicalMemory();
  properties->totalConstMem = 64 << 10;
  properties->l2CacheSize = lastLevelCache();
  properties->integrated = properties->unifiedAddressing = properties->managedMemory = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  const cudaError_t error = cudaGetDeviceProperties(&p, device);
  if (error != cudaSuccess) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(p.sharedMemPerBlock);
      break;
    case cudaDevAttrTotalConstantMemory:
      *value = static_cast<int>(p.totalConstMem);
      break;
    case cudaDevAttrWarpSize:
      *value = p.warpSize;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
      *value = p.regsPerBlock;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrL2CacheSize:
      *value = p.l2CacheSize;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = p.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(p.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(p.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = p.maxBlocksPerMultiProcessor;
      break;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
    case cudaDevAttrGlobalMemoryBusWidth:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrComputeCapabilityMajor:
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    default:
      return setLastError(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
cudaError_t cudaDeviceReset() {
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  return cudaRuntimeGetVersion(version);
}

// ---- streams and events

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->recorded = true;
  event->time = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  if (!start->recorded || !stop->recorded) return setLastError(cudaErrorInvalidResourceHandle);
  *milliseconds = std::chrono::duration<float, std::milli>(stop->time - start->time).count();
  return cudaSuccess;
}
