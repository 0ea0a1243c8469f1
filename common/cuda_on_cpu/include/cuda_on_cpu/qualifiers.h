// SPDX-License-Identifier: MIT
//
// CUDA's function and variable qualifiers, as a C++ compiler understands them.
#pragma once

#define CUDART_VERSION \
  13000  // The API below follows CUDA 13, so cudaDeviceProp has no clock rates.

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))

// A block never leaves its worker (an OS thread), so what belongs to the block may belong to that
// thread. The address sanitizer puts no red zones round thread_local arrays; that build has one
// worker, and ordinary statics.
#if defined(CUDA_ON_CPU_ADDRESS_SANITIZER)
#define __shared__ static
#else
#define __shared__ static thread_local
#endif

// The last two parameters of a device function: where in the .cu file it was called.
#define CUDA_ON_CPU_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()
