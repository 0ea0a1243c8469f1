// SPDX-License-Identifier: MIT
//
// A worker: an OS thread that runs blocks, one at a time, each to its end.
//
// A CUDA thread starts as a plain call on a spare stack. Only when it has to wait, for a barrier or
// a warp function, is that stack parked with it, and the worker takes another. A kernel without
// barriers thus runs as a loop of calls on one stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "context.h"
#include "cuda_on_cpu/launch.h"
#include "cuda_on_cpu/synchronization.h"
#include "cuda_on_cpu/warp.h"
#include "sanitizers.h"

namespace cuda_on_cpu {

constexpr unsigned kMostThreads = 1024;                // of a block
constexpr std::size_t kMostDynamicShared = 227 << 10;  // bytes, with opt-in
constexpr std::size_t kGuardBytes = 64 << 10;          // below each stack
constexpr unsigned char kUnset = 0xcd;                 // the checks fill unset memory with it

enum class State : std::uint8_t {
  kFresh,
  kRunning,
  kReady,
  kAtBarrier,
  kInWarpFunction,
  kInActiveMask,
  kDone,
};

// Where a thread waits, for the reports.
struct Wait {
  const char* what = "";
  const char* file = "";
  int line = 0;
};

struct Stack {
  Context context;
  char* low = nullptr;
  std::size_t size = 0;
  void* fake_stack = nullptr;  // the address sanitizer's
};

// What a lane brings to a warp function, and what it takes from it.
struct Lane {
  WarpFunction function;
  unsigned mask;
  int operand, width;
  std::uint64_t value, result;
};
struct Warp {
  unsigned arrived = 0;
  Lane lanes[32];
  char arrivals[32], departures[32];  // addresses the thread sanitizer orders __syncwarp() by
};

// Threads that can go on, first in, first out.
class ReadyQueue {
 public:
  void clear() { first_ = last_ = 0; }
  bool empty() const { return first_ == last_; }
  void push(unsigned thread) { ring_[last_++ % kMostThreads] = static_cast<std::uint16_t>(thread); }
  unsigned pop() { return ring_[first_++ % kMostThreads]; }

 private:
  unsigned first_ = 0, last_ = 0;
  std::uint16_t ring_[kMostThreads];
};

class Worker {
 public:
  explicit Worker(unsigned id);

  // Runs the block with this number to its end.
  void runBlock(const LaunchRequest& request, std::uint64_t block);

  // What the current CUDA thread calls.
  int barrier(BarrierKind kind, int predicate, const char* file, int line);
  void yield(const char* what, const char* file, int line);
  void mayBeSpinning(const void* address, const char* what, const char* file, int line);
  std::uint64_t warpFunction(const Lane& lane, const char* file, int line);
  unsigned activeMask(const char* file, int line);
  void noteFence() { fenced_[current_] = true; }
  bool hasFenced() const { return in_block_ && fenced_[current_]; }

  // For the reports.
  bool inBlock() const { return in_block_; }
  unsigned id() const { return id_; }
  const LaunchRequest& request() const { return *request_; }
  unsigned current() const { return current_; }
  uint3 block() const { return block_; }
  std::uint64_t progress() const { return progress_; }
  bool ownsGuard(const void* address) const;
  void describeThreads(std::FILE* out) const;

  // Gives this OS thread its dynamic shared memory and the range its atomics need no lock in.
  void prepareMemory(std::size_t dynamic_shared, bool owns_everything);
  static void ownEverything(bool everything);
  void unsetSharedMemory();
  bool ownsSharedEnd(const void* address) const;

  const void* last_volatile_read = nullptr;  // of the current thread (volatile_accesses.cpp)

 private:
  struct Choice {
    enum { kStart, kResume, kLeave } what;
    unsigned thread;
  };
  Choice choose(bool start_first);
  void setOrder(std::uint64_t block);
  void become(unsigned thread);
  void start();
  void park(bool start_first = false);
  void openBarrier();
  void openActiveMasks();
  void completeWarpFunction(unsigned warp, unsigned mask);
  void checkLanes(unsigned thread, const Lane& lane);
  Stack* takeStack();
  void switchTo(Stack* stack);
  void runThreads();
  static void enterStack();

  const unsigned id_;
  const LaunchRequest* request_ = nullptr;
  bool in_block_ = false;
  uint3 block_{};
  unsigned size_ = 0, started_ = 0, live_ = 0, current_ = 0;
  volatile std::uint64_t progress_ = 0;  // grows while the kernel gets on; the watchdog looks at it

  State state_[kMostThreads];
  Wait wait_[kMostThreads];
  Stack* parked_[kMostThreads];
  std::uint16_t order_[kMostThreads];  // in which threads start
  unsigned ordered_ = 0;               // how many of them are set, when it is the same each time
  bool fenced_[kMostThreads];
  ReadyQueue ready_;

  bool must_start_ = false;  // the stack that goes on now is to start a fresh thread

  unsigned at_barrier_ = 0;
  std::uint16_t barrier_[kMostThreads];  // in order of arrival
  BarrierKind barrier_kind_ = BarrierKind::kPlain;
  unsigned barriers_opened_ = 0;
  int true_count_ = 0, barrier_result_ = 0;
  unsigned in_active_mask_ = 0;
  unsigned active_mask_[kMostThreads];
  Warp warps_[kMostThreads / 32];
  const void* spin_address_ = nullptr;
  unsigned spin_thread_ = 0;

  Stack home_;  // the OS thread's own
  Stack* on_ = &home_;
  std::vector<Stack*> stacks_, spare_;

  std::size_t dynamic_bytes_ = 0;
  char* dynamic_allocated_ = nullptr;  // when the dynamic shared memory must end exactly

  void* tsan_home_ = nullptr;
  std::vector<void*> tsan_fibers_;
  char tsan_start_, tsan_end_, tsan_barrier_[2];
};

// The worker of this OS thread, or null.
extern __thread Worker* this_worker;

}  // namespace cuda_on_cpu
