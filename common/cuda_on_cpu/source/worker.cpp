// SPDX-License-Identifier: MIT
#include "worker.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "cuda_on_cpu/kernel_variables.h"
#include "options.h"
#include "report.h"

__thread uint3 threadIdx;
__thread uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace cuda_on_cpu {

__thread Worker* this_worker = nullptr;

namespace {

// Newer thread sanitizers know some 255 threads at a time, and beyond that see nothing without a
// word. So CUDA threads share the sanitizer's fibers when there are more of them.
unsigned mostTsanFibers() {
  return 240 / options().workers;
}

std::uint64_t scramble(std::uint64_t z) {  // splitmix64
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace

// ---- stacks

Worker::Worker(unsigned id) : id_(id) {
  // They must not grow while a kernel runs: the thread sanitizer sees the copying.
  stacks_.reserve(kMostThreads + 1);
  spare_.reserve(kMostThreads + 1);
}

Stack* Worker::takeStack() {
  if (!spare_.empty()) {
    Stack* stack = spare_.back();
    spare_.pop_back();
    return stack;
  }
  const std::size_t size = options().stack_bytes;
  void* memory = mmap(nullptr, kGuardBytes + size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    std::perror("cuda_on_cpu: no memory for the stack of a CUDA thread (fewer workers need less)");
    std::_Exit(kReportStatus);
  }
  Stack* stack = new Stack;
  stack->low = static_cast<char*>(memory) + kGuardBytes;
  // Stacks that all begin at the same offset in a page would fight for the same cache sets.
  stack->size = size - (stacks_.size() * 192 % 4096);
  stack->context.prepare(stack->low, stack->size, enterStack);
  stacks_.push_back(stack);
  return stack;
}

bool Worker::ownsGuard(const void* address) const {
  const char* p = static_cast<const char*>(address);
  return std::any_of(stacks_.begin(), stacks_.end(), [p](const Stack* stack) {
    return p >= stack->low - kGuardBytes && p < stack->low;
  });
}

void Worker::switchTo(Stack* stack) {
  Stack* left = on_;
  on_ = stack;
  sanitizer::leaveStack(&left->fake_stack, stack->low, stack->size);
  left->context.switchTo(stack->context);
  // Back again: whoever switched here has set on_ to `left`.
  const void* low;
  std::size_t size;
  sanitizer::enterStack(left->fake_stack, &low, &size);
}

// ---- the schedule

void Worker::setOrder(std::uint64_t block) {
  if (options().order == Order::kRandom) {
    std::iota(order_, order_ + size_, 0);
    std::uint64_t state = scramble(options().seed ^ scramble(block));
    for (unsigned i = size_; i > 1; --i) {
      state = scramble(state);
      std::swap(order_[i - 1], order_[state % i]);
    }
  } else if (ordered_ != size_) {
    std::iota(order_, order_ + size_, 0);
    if (options().order == Order::kDescending) std::reverse(order_, order_ + size_);
    ordered_ = size_;
  }
}

void Worker::runBlock(const LaunchRequest& request, std::uint64_t block) {
  request_ = &request;
  if (options().check) unsetSharedMemory();
  const dim3 grid = request.grid;
  block_ = {static_cast<unsigned>(block % grid.x), static_cast<unsigned>(block / grid.x % grid.y),
            static_cast<unsigned>(block / grid.x / grid.y)};
  blockIdx = block_;
  size_ = live_ = request.block.x * request.block.y * request.block.z;
  started_ = at_barrier_ = in_active_mask_ = 0;
  true_count_ = 0;
  ready_.clear();
  std::memset(state_, static_cast<int>(State::kFresh), size_);
  std::memset(fenced_, 0, size_);
  for (unsigned warp = 0; warp < (size_ + 31) / 32; ++warp) warps_[warp].arrived = 0;
  setOrder(block);
  spin_address_ = nullptr;
  if (sanitizer::kThread) {
    tsan_home_ = sanitizer::currentFiber();
    while (tsan_fibers_.size() < std::min(size_, mostTsanFibers())) {
      char name[40];
      std::snprintf(name, sizeof(name), "CUDA thread %zu", tsan_fibers_.size());
      tsan_fibers_.push_back(sanitizer::createFiber());
      sanitizer::nameFiber(tsan_fibers_.back(), name);
    }
    sanitizer::release(&tsan_start_);
  }
  in_block_ = true;
  switchTo(takeStack());
  in_block_ = false;
  sanitizer::acquire(&tsan_end_);
  ++progress_;
}

// What to do when the current thread cannot go on.
Worker::Choice Worker::choose(bool start_first) {
  for (;;) {
    if (start_first && started_ < size_) return {Choice::kStart, 0};
    if (!ready_.empty()) return {Choice::kResume, ready_.pop()};
    if (started_ < size_) return {Choice::kStart, 0};
    if (live_ == 0) return {Choice::kLeave, 0};
    if (in_active_mask_ > 0) {
      openActiveMasks();
    } else if (at_barrier_ == live_) {
      openBarrier();
    } else {
      reportBlock(*this, "deadlock: no thread of the block can go on");
    }
  }
}

void Worker::become(unsigned thread) {
  current_ = thread;
  state_[thread] = State::kRunning;
  const dim3 size = request_->block;
  if (size.y == 1 && size.z == 1) {
    threadIdx = {thread, 0, 0};
  } else {
    threadIdx = {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
  }
  if (sanitizer::kThread) {
    last_volatile_read = nullptr;
    sanitizer::switchFiber(tsan_fibers_[thread % tsan_fibers_.size()]);
  }
}

// Runs the next fresh thread as a plain call. It may come back much later, on this same stack, when
// other threads have run in between.
void Worker::start() {
  become(order_[started_++]);
  sanitizer::acquire(&tsan_start_);
  request_->call(request_->arguments);
  state_[current_] = State::kDone;
  --live_;
  ++progress_;
  if (sanitizer::kThread) {
    sanitizer::release(&tsan_end_);
    sanitizer::switchFiber(tsan_home_);
  }
}

// The loop at the bottom of every stack.
void Worker::runThreads() {
  for (;;) {
    const Choice next = choose(must_start_);
    must_start_ = false;
    if (next.what == Choice::kStart) {
      start();
      continue;
    }
    spare_.push_back(on_);
    if (next.what == Choice::kResume) {
      become(next.thread);
      switchTo(parked_[next.thread]);
    } else {
      switchTo(&home_);
    }
  }
}

void Worker::enterStack() {
  Worker& worker = *this_worker;
  const void* low;
  std::size_t size;
  sanitizer::enterStack(nullptr, &low, &size);
  if (sanitizer::kAddress && worker.home_.low == nullptr) {  // The first switch leaves home.
    worker.home_.low = static_cast<char*>(const_cast<void*>(low));
    worker.home_.size = size;
  }
  worker.runThreads();
}

// The current thread gives its turn away. Its state says what it waits for.
void Worker::park(bool start_first) {
  const unsigned me = current_;
  parked_[me] = on_;
  const Choice next = choose(start_first);
  if (next.what == Choice::kStart) {
    must_start_ = true;
    switchTo(takeStack());
  } else {
    become(next.thread);
    if (next.thread != me) switchTo(parked_[next.thread]);
  }
  // Whoever switches back here has called become(me).
}

// ---- barriers and waiting

int Worker::barrier(BarrierKind kind, int predicate, const char* file, int line) {
  static const char* const kNames[] = {"__syncthreads()", "__syncthreads_count()",
                                       "__syncthreads_and()", "__syncthreads_or()"};
  const unsigned me = current_;
  // Two addresses in turn: what a thread that runs ahead writes must not be taken for ordered.
  char* const ordered_by = &tsan_barrier_[barriers_opened_ & 1];
  sanitizer::release(ordered_by);
  state_[me] = State::kAtBarrier;
  wait_[me] = {kNames[static_cast<int>(kind)], file, line};
  barrier_[at_barrier_++] = static_cast<std::uint16_t>(me);
  barrier_kind_ = kind;
  true_count_ += predicate != 0;
  park();
  sanitizer::acquire(ordered_by);
  return barrier_result_;
}

// All threads that have not returned are here.
void Worker::openBarrier() {
  const Wait& first = wait_[barrier_[0]];
  for (unsigned i = 1; i < at_barrier_; ++i) {
    const Wait& other = wait_[barrier_[i]];
    if (other.line != first.line || other.what != first.what ||
        (other.file != first.file && std::strcmp(other.file, first.file) != 0)) {
      reportBlock(*this, "divergent barrier: threads of one block wait at different barriers");
    }
  }
  const int waiting = static_cast<int>(at_barrier_);
  barrier_result_ = barrier_kind_ == BarrierKind::kCount ? true_count_
                    : barrier_kind_ == BarrierKind::kAnd ? true_count_ == waiting
                                                         : true_count_ != 0;
  for (unsigned i = 0; i < at_barrier_; ++i) {
    state_[barrier_[i]] = State::kReady;
    ready_.push(barrier_[i]);
  }
  at_barrier_ = 0;
  true_count_ = 0;
  ++barriers_opened_;
  ++progress_;
}

void Worker::yield(const char* what, const char* file, int line) {
  const unsigned me = current_;
  if (started_ == size_ && ready_.empty()) {
    wait_[me] = {what, file, line};
    std::this_thread::yield();  // Only another worker can help.
    return;
  }
  state_[me] = State::kReady;
  wait_[me] = {what, file, line};
  ready_.push(me);
  park(true);
}

void Worker::mayBeSpinning(const void* address, const char* what, const char* file, int line) {
  if (spin_address_ == address && spin_thread_ == current_) {
    yield(what, file, line);
  }
  spin_address_ = address;
  spin_thread_ = current_;
}

}  // namespace cuda_on_cpu
