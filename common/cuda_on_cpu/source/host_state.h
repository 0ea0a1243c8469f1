// SPDX-License-Identifier: MIT
//
// What the host API remembers between calls.
#pragma once

#include <cstddef>

#include "cuda_on_cpu/host_api.h"

namespace cuda_on_cpu {

// Keeps the error for cudaGetLastError() and returns it.
cudaError_t setLastError(cudaError_t error);

// The most bytes of dynamic shared memory a launch may ask for: 48 KiB, or what
// cudaFuncSetAttribute() has allowed.
std::size_t dynamicSharedLimit();

}  // namespace cuda_on_cpu
