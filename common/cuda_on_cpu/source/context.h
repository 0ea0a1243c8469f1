// SPDX-License-Identifier: MIT
//
// A place where a computation stands, on a stack of its own, and the switch from one to another:
// by Boost.Context where it is installed, by libc's ucontext otherwise (which also makes a system
// call at each switch, to save the signal mask).
#pragma once

#include <cstddef>
#include <utility>

#if defined(CUDA_ON_CPU_BOOST_CONTEXT)
#include <boost/context/fiber.hpp>
#else
#include <ucontext.h>
#endif

namespace cuda_on_cpu {

#if defined(CUDA_ON_CPU_BOOST_CONTEXT)

class Context {
 public:
  // The first switch to this context calls entry(), which must not return.
  void prepare(char* low, std::size_t size, void (*entry)()) {
    struct KeepStack {  // The stack is ours; Boost need not free it.
      void deallocate(boost::context::stack_context&) {}
    };
    boost::context::stack_context stack;
    stack.sp = low + size;
    stack.size = size;
    fiber_ = boost::context::fiber(std::allocator_arg,
                                   boost::context::preallocated(stack.sp, size, stack), KeepStack(),
                                   [entry](boost::context::fiber&& previous) {
                                     left_->fiber_ = std::move(previous);
                                     entry();
                                     return boost::context::fiber();
                                   });
  }

  // Leaves this context for another; returns when somebody switches back.
  void switchTo(Context& other) {
    left_ = this;
    boost::context::fiber previous = std::move(other.fiber_).resume();
    left_->fiber_ = std::move(previous);  // Whoever came here left a context, too.
  }

 private:
  inline static __thread Context* left_ = nullptr;
  boost::context::fiber fiber_;
};

#else

class Context {
 public:
  void prepare(char* low, std::size_t size, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = low;
    context_.uc_stack.ss_size = size;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }

  void switchTo(Context& other) { swapcontext(&context_, &other.context_); }

 private:
  ucontext_t context_;
};

#endif

}  // namespace cuda_on_cpu
