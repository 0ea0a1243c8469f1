// SPDX-License-Identifier: MIT
//
// The variables a kernel finds set. They are real variables, so that a debugger can print them and
// use them in a condition: break 20.cu:57 if threadIdx.x == 37 && blockIdx.x == 5
//
// __thread rather than thread_local: C++ reaches an extern thread_local through a function call.
#pragma once

#include <cstddef>

#include "vector_types.h"

extern __thread uint3 threadIdx;
extern __thread uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
constexpr int warpSize = 32;

namespace cuda_on_cpu {

extern __thread char* dynamic_shared;  // of the block that runs on this worker

// `extern __shared__ T name[];` in a kernel becomes `auto& name = dynamicShared<T[]>();`
template <class Array>
inline Array& dynamicShared() {
  return *reinterpret_cast<Array*>(dynamic_shared);
}

// The same outside every function, where nothing can be bound yet: looks the address up on use.
template <class Element>
struct DynamicShared {
  operator Element*() const { return reinterpret_cast<Element*>(dynamic_shared); }
};

}  // namespace cuda_on_cpu
