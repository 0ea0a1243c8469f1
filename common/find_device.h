// SPDX-License-Identifier: MIT
//
// Home of the block `find_device`. It needs the block `cuda_check` above it.
#pragma once

#include "cuda_check.h"

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
