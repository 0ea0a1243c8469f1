// SPDX-License-Identifier: MIT
//
// Device functions of one thread: bits, bytes in a word, loads and stores with a cache hint, and
// the min() and max() that CUDA declares outside every namespace.
#pragma once

#include <cstdint>
#include <type_traits>

#include "qualifiers.h"

inline int __popc(unsigned v) {
  return __builtin_popcount(v);
}
inline int __popcll(unsigned long long v) {
  return __builtin_popcountll(v);
}
inline int __clz(int v) {
  return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v));
}
inline int __clzll(long long v) {
  return v == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(v));
}
inline int __ffs(int v) {
  return __builtin_ffs(v);
}
inline int __ffsll(long long v) {
  return __builtin_ffsll(v);
}

inline unsigned long long __brevll(unsigned long long v) {
  v = __builtin_bswap64(v);
  v = (v & 0x0f0f0f0f0f0f0f0full) << 4 | (v >> 4 & 0x0f0f0f0f0f0f0f0full);
  v = (v & 0x3333333333333333ull) << 2 | (v >> 2 & 0x3333333333333333ull);
  return (v & 0x5555555555555555ull) << 1 | (v >> 1 & 0x5555555555555555ull);
}
inline unsigned __brev(unsigned v) {
  return static_cast<unsigned>(__brevll(v) >> 32);
}

// Each of the four nibbles of `selector` picks one of the eight bytes of y:x; a nibble's top bit
// asks for that byte's sign instead, eight times.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned nibble = selector >> (4 * i) & 15;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (nibble & 7))) & 255;
    if (nibble & 8) byte = byte & 128 ? 255 : 0;
    result |= byte << (8 * i);
  }
  return result;
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both >> (shift & 31));
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both << (shift < 32 ? shift : 32) >> 32);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both >> (shift < 32 ? shift : 32));
}

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32);
}
inline int __mulhi(int a, int b) {
  return static_cast<int>(static_cast<std::int64_t>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>(static_cast<Wide>(a) * b >> 64);
}

// c plus the products of the four bytes of a and b.
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) {
    c += static_cast<signed char>(a >> i) * static_cast<signed char>(b >> i);
  }
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
  return c;
}

namespace cuda_on_cpu {

// Applies f to each field of `bits` bits of two words.
template <int bits, class F>
inline unsigned fieldByField(unsigned a, unsigned b, F f) {
  const unsigned field = (1u << bits) - 1;
  unsigned result = 0;
  for (int i = 0; i < 32; i += bits) {
    result |= (static_cast<unsigned>(f(a >> i & field, b >> i & field)) & field) << i;
  }
  return result;
}

}  // namespace cuda_on_cpu

#define CUDA_ON_CPU_FIELDS(name, bits, expression)                                             \
  inline unsigned name(unsigned left, unsigned right) {                                        \
    return cuda_on_cpu::fieldByField<bits>(left, right,                                        \
                                           [](unsigned a, unsigned b) { return expression; }); \
  }
CUDA_ON_CPU_FIELDS(__vadd2, 16, a + b)
CUDA_ON_CPU_FIELDS(__vadd4, 8, a + b)
CUDA_ON_CPU_FIELDS(__vsub2, 16, a - b)
CUDA_ON_CPU_FIELDS(__vsub4, 8, a - b)
CUDA_ON_CPU_FIELDS(__vcmpeq2, 16, a == b ? ~0u : 0u)
CUDA_ON_CPU_FIELDS(__vcmpeq4, 8, a == b ? ~0u : 0u)
CUDA_ON_CPU_FIELDS(__vcmpne4, 8, a != b ? ~0u : 0u)
CUDA_ON_CPU_FIELDS(__vcmpltu4, 8, a < b ? ~0u : 0u)
CUDA_ON_CPU_FIELDS(__vcmpgeu4, 8, a >= b ? ~0u : 0u)
CUDA_ON_CPU_FIELDS(__vmaxu4, 8, a > b ? a : b)
CUDA_ON_CPU_FIELDS(__vminu4, 8, a < b ? a : b)
#undef CUDA_ON_CPU_FIELDS

inline int __float_as_int(float v) {
  return __builtin_bit_cast(int, v);
}
inline unsigned __float_as_uint(float v) {
  return __builtin_bit_cast(unsigned, v);
}
inline float __int_as_float(int v) {
  return __builtin_bit_cast(float, v);
}
inline float __uint_as_float(unsigned v) {
  return __builtin_bit_cast(float, v);
}
inline long long __double_as_longlong(double v) {
  return __builtin_bit_cast(long long, v);
}
inline double __longlong_as_double(long long v) {
  return __builtin_bit_cast(double, v);
}

namespace cuda_on_cpu {

// Loops that wait for a flag read it past the nearest cache, so such a load must really happen.
template <class T>
inline T freshLoad(const T* address) {
  if constexpr (std::is_scalar_v<T>)
    return *const_cast<const volatile T*>(address);
  else
    return *address;
}
template <class T>
inline void freshStore(T* address, T value) {
  if constexpr (std::is_scalar_v<T>)
    *const_cast<volatile T*>(address) = value;
  else
    *address = value;
}

}  // namespace cuda_on_cpu

// clang-format off
template <class T> inline T __ldg(const T* address) { return *address; }
template <class T> inline T __ldca(const T* address) { return *address; }
template <class T> inline T __ldcs(const T* address) { return *address; }
template <class T> inline T __ldlu(const T* address) { return *address; }
template <class T> inline T __ldcg(const T* address) { return cuda_on_cpu::freshLoad(address); }
template <class T> inline T __ldcv(const T* address) { return cuda_on_cpu::freshLoad(address); }
template <class T> inline void __stcs(T* address, T value) { *address = value; }
template <class T> inline void __stwb(T* address, T value) { *address = value; }
template <class T> inline void __stcg(T* address, T v) { cuda_on_cpu::freshStore(address, v); }
template <class T> inline void __stwt(T* address, T v) { cuda_on_cpu::freshStore(address, v); }
// clang-format on

#define CUDA_ON_CPU_MIN_MAX(left, right, result)                         \
  constexpr result min(left a, right b) {                                \
    const result x = static_cast<result>(a), y = static_cast<result>(b); \
    return x < y ? x : y;                                                \
  }                                                                      \
  constexpr result max(left a, right b) {                                \
    const result x = static_cast<result>(a), y = static_cast<result>(b); \
    return x < y ? y : x;                                                \
  }
CUDA_ON_CPU_MIN_MAX(int, int, int)
CUDA_ON_CPU_MIN_MAX(unsigned, unsigned, unsigned)
CUDA_ON_CPU_MIN_MAX(int, unsigned, unsigned)
CUDA_ON_CPU_MIN_MAX(unsigned, int, unsigned)
CUDA_ON_CPU_MIN_MAX(long, long, long)
CUDA_ON_CPU_MIN_MAX(unsigned long, unsigned long, unsigned long)
CUDA_ON_CPU_MIN_MAX(long, unsigned long, unsigned long)
CUDA_ON_CPU_MIN_MAX(unsigned long, long, unsigned long)
CUDA_ON_CPU_MIN_MAX(long long, long long, long long)
CUDA_ON_CPU_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
CUDA_ON_CPU_MIN_MAX(float, float, float)
CUDA_ON_CPU_MIN_MAX(double, double, double)
CUDA_ON_CPU_MIN_MAX(float, double, double)
CUDA_ON_CPU_MIN_MAX(double, float, double)
#undef CUDA_ON_CPU_MIN_MAX
