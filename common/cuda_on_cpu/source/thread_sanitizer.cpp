// SPDX-License-Identifier: MIT
//
// What the thread sanitizer is told of a kernel's atomics, fences and volatile accesses.
#if defined(CUDA_ON_CPU_THREAD_SANITIZER)

#include <cstdint>

#include "cuda_on_cpu/atomics.h"
#include "sanitizers.h"
#include "worker.h"

namespace cuda_on_cpu {

void noteFence() {
  if (this_worker != nullptr && this_worker->inBlock()) this_worker->noteFence();
}

void orderBeforeAtomic(void* address) {
  if (this_worker != nullptr && this_worker->hasFenced()) sanitizer::release(address);
}

void orderAfterAtomic(void* address) {
  if (this_worker != nullptr && this_worker->hasFenced()) sanitizer::acquire(address);
}

}  // namespace cuda_on_cpu

// The compiler calls these for volatile accesses (tsan-distinguish-volatile). Volatile is how CUDA
// code shares a flag: a load or a store of its own counts as a relaxed atomic one. But a thread
// that stores where it has just loaded, as in v = v + 1, may lose what another has stored in
// between: that store counts as an ordinary one, and is reported.
extern "C" {

std::uint8_t __tsan_atomic8_load(const volatile std::uint8_t* address, int order);
std::uint16_t __tsan_atomic16_load(const volatile std::uint16_t* address, int order);
std::uint32_t __tsan_atomic32_load(const volatile std::uint32_t* address, int order);
std::uint64_t __tsan_atomic64_load(const volatile std::uint64_t* address, int order);
std::uint8_t __tsan_atomic8_fetch_or(volatile std::uint8_t*, std::uint8_t, int order);
std::uint16_t __tsan_atomic16_fetch_or(volatile std::uint16_t*, std::uint16_t, int order);
std::uint32_t __tsan_atomic32_fetch_or(volatile std::uint32_t*, std::uint32_t, int order);
std::uint64_t __tsan_atomic64_fetch_or(volatile std::uint64_t*, std::uint64_t, int order);
void __tsan_write1(void* address);
void __tsan_write2(void* address);
void __tsan_write4(void* address);
void __tsan_write8(void* address);
void __tsan_read16(void* address);
void __tsan_write16(void* address);

// Adding no bits is a write to the sanitizer, and changes nothing.
#define CUDA_ON_CPU_VOLATILE(bytes, bits)                                               \
  void __tsan_volatile_read##bytes(void* address) {                                     \
    using namespace cuda_on_cpu;                                                        \
    __tsan_atomic##bits##_load(static_cast<std::uint##bits##_t*>(address), 0);          \
    if (this_worker != nullptr) this_worker->last_volatile_read = address;              \
  }                                                                                     \
  void __tsan_volatile_write##bytes(void* address) {                                    \
    using namespace cuda_on_cpu;                                                        \
    if (this_worker != nullptr && this_worker->last_volatile_read == address) {         \
      __tsan_write##bytes(address);                                                     \
    } else {                                                                            \
      __tsan_atomic##bits##_fetch_or(static_cast<std::uint##bits##_t*>(address), 0, 0); \
    }                                                                                   \
  }
CUDA_ON_CPU_VOLATILE(1, 8)
CUDA_ON_CPU_VOLATILE(2, 16)
CUDA_ON_CPU_VOLATILE(4, 32)
CUDA_ON_CPU_VOLATILE(8, 64)
#undef CUDA_ON_CPU_VOLATILE
void __tsan_volatile_read16(void* address) {
  __tsan_read16(address);
}
void __tsan_volatile_write16(void* address) {
  __tsan_write16(address);
}

}  // extern "C"

#endif
