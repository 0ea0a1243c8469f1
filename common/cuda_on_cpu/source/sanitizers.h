// SPDX-License-Identifier: MIT
//
// What the sanitizers must be told. The runtime itself is compiled without them: only kernels and
// host code of the .cu file are checked. Without a sanitizer all of this is empty.
#pragma once

#include <cstddef>

#if defined(CUDA_ON_CPU_ADDRESS_SANITIZER)
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack, const void* low, std::size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** low, std::size_t* size);
void __asan_poison_memory_region(const volatile void* address, std::size_t size);
void __asan_unpoison_memory_region(const volatile void* address, std::size_t size);
}
#endif
#if defined(CUDA_ON_CPU_THREAD_SANITIZER)
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_set_fiber_name(void* fiber, const char* name);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

namespace cuda_on_cpu {
namespace sanitizer {

#if defined(CUDA_ON_CPU_ADDRESS_SANITIZER)
constexpr bool kAddress = true;
inline void leaveStack(void** fake, const void* low, std::size_t size) {
  __sanitizer_start_switch_fiber(fake, low, size);
}
inline void enterStack(void* fake, const void** left_low, std::size_t* left_size) {
  __sanitizer_finish_switch_fiber(fake, left_low, left_size);
}
inline void close(const void* address, std::size_t size) {
  __asan_poison_memory_region(address, size);
}
inline void open(const void* address, std::size_t size) {
  __asan_unpoison_memory_region(address, size);
}
#else
constexpr bool kAddress = false;
inline void leaveStack(void**, const void*, std::size_t) {}
inline void enterStack(void*, const void**, std::size_t*) {}
inline void close(const void*, std::size_t) {}
inline void open(const void*, std::size_t) {}
#endif

#if defined(CUDA_ON_CPU_THREAD_SANITIZER)
constexpr bool kThread = true;
inline void acquire(void* address) {
  __tsan_acquire(address);
}
inline void release(void* address) {
  __tsan_release(address);
}
inline void* currentFiber() {
  return __tsan_get_current_fiber();
}
inline void* createFiber() {
  return __tsan_create_fiber(0);
}
inline void nameFiber(void* fiber, const char* name) {
  __tsan_set_fiber_name(fiber, name);
}
// Flag 1: the switch itself orders nothing.
inline void switchFiber(void* fiber) {
  __tsan_switch_to_fiber(fiber, 1);
}
#else
constexpr bool kThread = false;
inline void acquire(void*) {}
inline void release(void*) {}
inline void* currentFiber() {
  return nullptr;
}
inline void* createFiber() {
  return nullptr;
}
inline void nameFiber(void*, const char*) {}
inline void switchFiber(void*) {}
#endif

}  // namespace sanitizer
}  // namespace cuda_on_cpu
