// SPDX-License-Identifier: MIT
//
// The atomic functions. Shared memory belongs to one worker, so an address inside the range that
// this worker owns needs no locked instruction: a plain add there is three times faster. When only
// one worker runs, it owns everything; in the thread-sanitizer build it owns nothing.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "qualifiers.h"

namespace cuda_on_cpu {

struct OwnedRange {
  std::uintptr_t begin;
  std::uintptr_t size;
};
extern __thread OwnedRange owned_range;

inline bool ownedByThisWorker(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) - owned_range.begin < owned_range.size;
}

// Called where a loop may be waiting for another thread. The second time in a row that a thread
// comes with the same address, the other threads of its block get a turn.
void mayBeSpinning(const void* address, const char* what, const char* file, int line);

#if defined(CUDA_ON_CPU_CHECK)
// Reports an atomic update of shared memory that still holds the pattern of unset memory.
void checkIsSet(const void* address, unsigned bytes, const char* file, int line);
#endif
#if defined(CUDA_ON_CPU_THREAD_SANITIZER)
// Relaxed atomics order nothing. Once a thread has called __threadfence(), its later atomics do,
// as in "write, fence, take a ticket; whoever takes the last ticket reads".
void noteFence();
void orderBeforeAtomic(void* address);
void orderAfterAtomic(void* address);
#endif

template <class T>
struct AsGiven {
  using type = T;
};
template <class T>
using Value = typename AsGiven<T>::type;  // keeps the second argument out of the deduction of T

template <class T, class... Allowed>
constexpr bool kOneOf = (std::is_same_v<T, Allowed> || ...);
template <class T>
constexpr bool kInteger = kOneOf<T, int, unsigned, unsigned long long, long long>;

// Replaces *address by update(*address) in one step; returns the old value.
template <class T, class Locked, class Update>
__forceinline__ T atomically(T* address, Locked locked, Update update, const char* file, int line) {
#if defined(CUDA_ON_CPU_CHECK)
  checkIsSet(address, sizeof(T), file, line);
#endif
  (void)file, (void)line;
  if (ownedByThisWorker(address)) {
    const T old = *address;
    *address = update(old);
    return old;
  }
#if defined(CUDA_ON_CPU_THREAD_SANITIZER)
  orderBeforeAtomic(address);
  const T old = locked();
  orderAfterAtomic(address);
  return old;
#else
  return locked();
#endif
}

// The locked form of an update for which the machine has no instruction.
template <class T, class Update>
inline T compareAndSwapLoop(T* address, Update update) {
  T old;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  T next = update(old);
  while (
      !__atomic_compare_exchange(address, &old, &next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    next = update(old);
  }
  return old;
}

template <class T, class Update>
__forceinline__ T atomicUpdate(T* address, Update update, const char* file, int line) {
  return atomically(
      address, [=] { return compareAndSwapLoop(address, update); }, update, file, line);
}

}  // namespace cuda_on_cpu

template <class T>
__forceinline__ T atomicAdd(T* address, cuda_on_cpu::Value<T> value, CUDA_ON_CPU_CALLER) {
  static_assert(cuda_on_cpu::kOneOf<T, int, unsigned, unsigned long long, float, double>,
                "atomicAdd: CUDA has no such overload");
  const auto update = [=](T old) {
    if constexpr (std::is_same_v<T, int>)
      return static_cast<int>(static_cast<unsigned>(old) + value);
    else
      return static_cast<T>(old + value);
  };
  const auto locked = [=] {
    if constexpr (std::is_integral_v<T>)
      return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
    else
      return cuda_on_cpu::compareAndSwapLoop(address, update);
  };
  const T old = cuda_on_cpu::atomically(address, locked, update, file, line);
  // Adding nothing is how some loops read a flag that another thread will set.
  if (__builtin_expect(value == T{}, 0)) {
    cuda_on_cpu::mayBeSpinning(address, "atomicAdd() of 0", file, line);
  }
  return old;
}

template <class T>
__forceinline__ T atomicSub(T* address, cuda_on_cpu::Value<T> value, CUDA_ON_CPU_CALLER) {
  static_assert(cuda_on_cpu::kOneOf<T, int, unsigned>, "atomicSub: CUDA has no such overload");
  return atomicAdd(address, static_cast<T>(0u - static_cast<unsigned>(value)), file, line);
}

template <class T>
__forceinline__ T atomicExch(T* address, cuda_on_cpu::Value<T> value, CUDA_ON_CPU_CALLER) {
  static_assert(cuda_on_cpu::kOneOf<T, int, unsigned, unsigned long long, float>,
                "atomicExch: CUDA has no such overload");
  const auto locked = [=] {
    T old, next = value;
    __atomic_exchange(address, &next, &old, __ATOMIC_ACQ_REL);
    return old;
  };
  const T old = cuda_on_cpu::atomically(
      address, locked, [=](T) { return value; }, file, line);
  // Nothing changed: this may be a lock that somebody else holds.
  if (old == value) cuda_on_cpu::mayBeSpinning(address, "atomicExch()", file, line);
  return old;
}

template <class T>
__forceinline__ T atomicCAS(T* address, cuda_on_cpu::Value<T> compare, cuda_on_cpu::Value<T> value,
                            CUDA_ON_CPU_CALLER) {
  static_assert(cuda_on_cpu::kOneOf<T, int, unsigned, unsigned long long, unsigned short>,
                "atomicCAS: CUDA has no such overload");
  const auto locked = [=] {
    T old = compare;
    __atomic_compare_exchange_n(address, &old, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return old;
  };
  const auto update = [=](T old) { return old == compare ? value : old; };
  const T old = cuda_on_cpu::atomically(address, locked, update, file, line);
  if (old != compare) cuda_on_cpu::mayBeSpinning(address, "a failed atomicCAS()", file, line);
  return old;
}

#define CUDA_ON_CPU_ATOMIC(name, allowed, expression)                                   \
  template <class T>                                                                    \
  __forceinline__ T name(T* address, cuda_on_cpu::Value<T> value, CUDA_ON_CPU_CALLER) { \
    static_assert(allowed, #name ": CUDA has no such overload");                        \
    return cuda_on_cpu::atomicUpdate(                                                   \
        address, [=](T old) { return static_cast<T>(expression); }, file, line);        \
  }
CUDA_ON_CPU_ATOMIC(atomicMin, cuda_on_cpu::kInteger<T>, value < old ? value : old)
CUDA_ON_CPU_ATOMIC(atomicMax, cuda_on_cpu::kInteger<T>, old < value ? value : old)
CUDA_ON_CPU_ATOMIC(atomicAnd, cuda_on_cpu::kInteger<T>, old& value)
CUDA_ON_CPU_ATOMIC(atomicOr, cuda_on_cpu::kInteger<T>, old | value)
CUDA_ON_CPU_ATOMIC(atomicXor, cuda_on_cpu::kInteger<T>, old ^ value)
CUDA_ON_CPU_ATOMIC(atomicInc, (std::is_same_v<T, unsigned>), old >= value ? 0u : old + 1u)
CUDA_ON_CPU_ATOMIC(atomicDec, (std::is_same_v<T, unsigned>),
                   old == 0u || old > value ? value : old - 1u)
#undef CUDA_ON_CPU_ATOMIC

// On one machine with one kind of memory, every scope is as good as the widest.
#define CUDA_ON_CPU_SCOPES(name)                                                                 \
  template <class T>                                                                             \
  __forceinline__ T name##_block(T* address, cuda_on_cpu::Value<T> value, CUDA_ON_CPU_CALLER) {  \
    return name(address, value, file, line);                                                     \
  }                                                                                              \
  template <class T>                                                                             \
  __forceinline__ T name##_system(T* address, cuda_on_cpu::Value<T> value, CUDA_ON_CPU_CALLER) { \
    return name(address, value, file, line);                                                     \
  }
CUDA_ON_CPU_SCOPES(atomicAdd)
CUDA_ON_CPU_SCOPES(atomicSub)
CUDA_ON_CPU_SCOPES(atomicExch)
CUDA_ON_CPU_SCOPES(atomicMin)
CUDA_ON_CPU_SCOPES(atomicMax)
CUDA_ON_CPU_SCOPES(atomicAnd)
CUDA_ON_CPU_SCOPES(atomicOr)
CUDA_ON_CPU_SCOPES(atomicXor)
CUDA_ON_CPU_SCOPES(atomicInc)
CUDA_ON_CPU_SCOPES(atomicDec)
#undef CUDA_ON_CPU_SCOPES

template <class T>
__forceinline__ T atomicCAS_block(T* address, cuda_on_cpu::Value<T> compare,
                                  cuda_on_cpu::Value<T> value, CUDA_ON_CPU_CALLER) {
  return atomicCAS(address, compare, value, file, line);
}
template <class T>
__forceinline__ T atomicCAS_system(T* address, cuda_on_cpu::Value<T> compare,
                                   cuda_on_cpu::Value<T> value, CUDA_ON_CPU_CALLER) {
  return atomicCAS(address, compare, value, file, line);
}
