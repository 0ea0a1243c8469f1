// SPDX-License-Identifier: MIT
//
// A launch. tools/cuda_on_cpu.py writes
//
//     kernel<<<grid, block, shared, stream>>>(a, b);     as
//     [&](auto... a_) { kernel(a_...); } <<::cuda_on_cpu::Config("kernel", grid, ...).args(a, b);
//
// so that the kernel is called by name, with overloads and template arguments as C++ finds them.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "host_api.h"
#include "vector_types.h"

namespace cuda_on_cpu {

// A pointer among a kernel's arguments, for the check that it points to device memory.
struct PointerArgument {
  int number;  // from 1
  const volatile void* value;
};

// What the compiled part of the runtime needs to know of a launch.
struct LaunchRequest {
  const char* kernel;
  dim3 grid, block;
  std::size_t dynamic_shared;
  const char* file;
  int line;
  void (*call)(void* arguments);  // runs the kernel once, as the current CUDA thread
  void* arguments;
  const PointerArgument* pointers;
  int pointer_count;
};
void launch(const LaunchRequest& request);

template <class... A>
struct BoundLaunch {
  LaunchRequest request;
  std::tuple<A...> arguments;
};

class Config {
 public:
  Config(const char* kernel, dim3 grid, dim3 block, std::size_t dynamic_shared = 0,
         cudaStream_t = nullptr, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : request_{kernel, grid, block, dynamic_shared, file, line, nullptr, nullptr, nullptr, 0} {}

  template <class... A>
  BoundLaunch<std::decay_t<A>...> args(A&&... arguments) const {
    return {request_, std::tuple<std::decay_t<A>...>(std::forward<A>(arguments)...)};
  }

 private:
  LaunchRequest request_;
};

template <class T>
inline void notePointer(PointerArgument* list, int* count, int number, const T& value) {
  if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) {
    list[(*count)++] = {number, value};
  } else {
    (void)list, (void)count, (void)number, (void)value;
  }
}

template <class Kernel, class... A, std::size_t... i>
inline void launchWith(Kernel& kernel, BoundLaunch<A...>& bound, std::index_sequence<i...>) {
  struct Call {
    Kernel& kernel;
    std::tuple<A...>& arguments;
  } call{kernel, bound.arguments};
  PointerArgument pointers[sizeof...(A) + 1];
  int count = 0;
  (notePointer(pointers, &count, static_cast<int>(i) + 1, std::get<i>(bound.arguments)), ...);
  bound.request.pointers = pointers;
  bound.request.pointer_count = count;
  bound.request.arguments = &call;
  bound.request.call = [](void* p) {
    Call& c = *static_cast<Call*>(p);
    c.kernel(std::get<i>(c.arguments)...);
  };
  launch(bound.request);
}

template <class Kernel, class... A>
inline void operator<<(Kernel kernel, BoundLaunch<A...> bound) {
  launchWith(kernel, bound, std::index_sequence_for<A...>());
}

}  // namespace cuda_on_cpu
