// SPDX-License-Identifier: MIT
//
// Barriers, fences and waiting. Each waiting function lets the other threads of the block run.
#pragma once

#include <atomic>

#include "qualifiers.h"

namespace cuda_on_cpu {

enum class BarrierKind { kPlain, kCount, kAnd, kOr };

int barrier(BarrierKind kind, int predicate, const char* file, int line);
// Lets the other threads of the block run; `what` says in a report where this one stands.
void yield(const char* what, const char* file, int line);
[[noreturn]] void trap(const char* file, int line);
#if defined(CUDA_ON_CPU_THREAD_SANITIZER)
void noteFence();  // see atomics.h
#endif

}  // namespace cuda_on_cpu

inline void __syncthreads(CUDA_ON_CPU_CALLER) {
  cuda_on_cpu::barrier(cuda_on_cpu::BarrierKind::kPlain, 0, file, line);
}
inline int __syncthreads_count(int predicate, CUDA_ON_CPU_CALLER) {
  return cuda_on_cpu::barrier(cuda_on_cpu::BarrierKind::kCount, predicate, file, line);
}
inline int __syncthreads_and(int predicate, CUDA_ON_CPU_CALLER) {
  return cuda_on_cpu::barrier(cuda_on_cpu::BarrierKind::kAnd, predicate, file, line);
}
inline int __syncthreads_or(int predicate, CUDA_ON_CPU_CALLER) {
  return cuda_on_cpu::barrier(cuda_on_cpu::BarrierKind::kOr, predicate, file, line);
}

// A fence is often part of a loop that waits for another thread, so it gives that thread a turn.
inline void __threadfence(CUDA_ON_CPU_CALLER) {
#if defined(CUDA_ON_CPU_THREAD_SANITIZER)
  cuda_on_cpu::noteFence();  // The sanitizer does not understand a C++ fence.
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  cuda_on_cpu::yield("__threadfence()", file, line);
}
inline void __threadfence_system(CUDA_ON_CPU_CALLER) {
  __threadfence(file, line);
}
inline void __threadfence_block(CUDA_ON_CPU_CALLER) {
  __threadfence(file, line);
}
inline void __nanosleep(unsigned, CUDA_ON_CPU_CALLER) {
  cuda_on_cpu::yield("__nanosleep()", file, line);
}
[[noreturn]] inline void __trap(CUDA_ON_CPU_CALLER) {
  cuda_on_cpu::trap(file, line);
}
