// SPDX-License-Identifier: MIT
//
// Warp functions. Each lane leaves its value and waits; the last to arrive computes everybody's
// result and makes the others ready.
#include "cuda_on_cpu/warp.h"

#include <cstdio>
#include <cstring>

#include "report.h"
#include "worker.h"

namespace cuda_on_cpu {
namespace {

// The value of a lane that takes no part is not defined; this one is easy to recognize.
constexpr std::uint64_t kUndefined = 0xcdcdcdcdcdcdcdcdull;

const char* nameOf(WarpFunction function) {
  static const char* const kNames[] = {
      "__syncwarp()",        "__shfl_sync()",       "__shfl_up_sync()",    "__shfl_down_sync()",
      "__shfl_xor_sync()",   "__ballot_sync()",     "__any_sync()",        "__all_sync()",
      "__match_any_sync()",  "__match_all_sync()",  "__reduce_add_sync()", "__reduce_and_sync()",
      "__reduce_or_sync()",  "__reduce_xor_sync()", "__reduce_min_sync()", "__reduce_max_sync()",
      "__reduce_min_sync()", "__reduce_max_sync()"};
  return kNames[static_cast<int>(function)];
}

// Calls f(lane) for each lane of the mask.
template <class F>
void forLanes(unsigned mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(static_cast<unsigned>(__builtin_ctz(mask)));
}

// The lane a shuffle reads from: the rules of the PTX instruction shfl.
unsigned sourceLane(const Lane& lane, unsigned me) {
  const unsigned segment = static_cast<unsigned>(32 - lane.width) & 31;
  const int first = static_cast<int>(me & segment), last = first | (~segment & 31);
  const int here = static_cast<int>(me), by = lane.operand & 31;
  int from = here;
  switch (lane.function) {
    case WarpFunction::kShuffle:
      from = first | (by & static_cast<int>(~segment & 31));
      break;
    case WarpFunction::kShuffleUp:
      from = here - by >= first ? here - by : here;
      break;
    case WarpFunction::kShuffleDown:
      from = here + by <= last ? here + by : here;
      break;
    default:
      from = (here ^ by) <= last ? here ^ by : here;
      break;
  }
  return static_cast<unsigned>(from);
}

std::uint64_t reduce(WarpFunction function, std::uint64_t a, std::uint64_t b) {
  const unsigned x = static_cast<unsigned>(a), y = static_cast<unsigned>(b);
  const int i = static_cast<int>(x), j = static_cast<int>(y);
  switch (function) {
    case WarpFunction::kAdd:
      return x + y;
    case WarpFunction::kAnd:
      return x & y;
    case WarpFunction::kOr:
      return x | y;
    case WarpFunction::kXor:
      return x ^ y;
    case WarpFunction::kMinSigned:
      return static_cast<unsigned>(i < j ? i : j);
    case WarpFunction::kMaxSigned:
      return static_cast<unsigned>(i < j ? j : i);
    case WarpFunction::kMinUnsigned:
      return x < y ? x : y;
    default:
      return x < y ? y : x;
  }
}

// For each lane, the lanes that hold the same value. A small hash table finds them in one pass.
void matchAny(Lane* lanes, unsigned mask) {
  unsigned char first[64];
  unsigned char slot_of[32];
  unsigned same[64];
  std::memset(first, 0xff, sizeof(first));
  forLanes(mask, [&](unsigned k) {
    unsigned slot = static_cast<unsigned>((lanes[k].value * 0x9e3779b97f4a7c15ull) >> 58);
    while (first[slot] != 0xff && lanes[first[slot]].value != lanes[k].value) {
      slot = (slot + 1) % 64;
    }
    if (first[slot] == 0xff) {
      first[slot] = static_cast<unsigned char>(k);
      same[slot] = 0;
    }
    same[slot] |= 1u << k;
    slot_of[k] = static_cast<unsigned char>(slot);
  });
  forLanes(mask, [&](unsigned k) { lanes[k].result = same[slot_of[k]]; });
}

void computeResults(WarpFunction function, Lane* lanes, unsigned mask) {
  const unsigned any_lane = static_cast<unsigned>(__builtin_ctz(mask));
  std::uint64_t common = 0;  // what all lanes get, in the functions where all get the same
  switch (function) {
    case WarpFunction::kSync:
      return;
    case WarpFunction::kMatchAny:
      return matchAny(lanes, mask);
    case WarpFunction::kShuffle:
    case WarpFunction::kShuffleUp:
    case WarpFunction::kShuffleDown:
    case WarpFunction::kShuffleXor:
      forLanes(mask, [&](unsigned k) {
        const unsigned from = sourceLane(lanes[k], k);
        lanes[k].result = mask >> from & 1 ? lanes[from].value : kUndefined;
      });
      return;
    case WarpFunction::kBallot:
    case WarpFunction::kAny:
    case WarpFunction::kAll:
      forLanes(mask, [&](unsigned k) { common |= lanes[k].value << k; });
      if (function == WarpFunction::kAny) common = common != 0;
      if (function == WarpFunction::kAll) common = common == mask;
      break;
    case WarpFunction::kMatchAll:
      common = mask;
      forLanes(mask, [&](unsigned k) {
        if (lanes[k].value != lanes[any_lane].value) common = 0;
      });
      break;
    default:
      common = lanes[any_lane].value;
      forLanes(mask & (mask - 1),
               [&](unsigned k) { common = reduce(function, common, lanes[k].value); });
  }
  forLanes(mask, [&](unsigned k) { lanes[k].result = common; });
}

}  // namespace

std::uint64_t Worker::warpFunction(const Lane& request, const char* file, int line) {
  const unsigned me = current_, lane = me % 32, warp_number = me / 32;
  Warp& warp = warps_[warp_number];
  Lane& mine = warp.lanes[lane];
  mine = request;
  // A block that is no multiple of 32 has a last warp whose upper lanes do not exist.
  const unsigned threads = size_ - warp_number * 32;
  if (threads < 32) mine.mask &= (1u << threads) - 1;
  wait_[me] = {nameOf(mine.function), file, line};
  state_[me] = State::kInWarpFunction;
  checkLanes(me, mine);
  warp.arrived |= 1u << lane;
  const unsigned mask = mine.mask;
  const bool orders = mine.function == WarpFunction::kSync;
  if (orders) sanitizer::release(&warp.arrivals[lane]);
  if ((warp.arrived & mask) == mask) {
    completeWarpFunction(warp_number, mask);
    state_[me] = State::kRunning;
  } else {
    park();
  }
  if (orders) sanitizer::acquire(&warp.departures[lane]);
  return mine.result;
}

// Lanes that name each other must have called the same function with the same mask.
void Worker::checkLanes(unsigned thread, const Lane& lane) {
  const unsigned me = thread % 32, base = thread - me;
  char why[160];
  if ((lane.mask >> me & 1) == 0) {
    std::snprintf(why, sizeof(why),
                  "wrong mask: thread %u calls %s but its lane %u is not in its own mask 0x%08x",
                  thread, nameOf(lane.function), me, lane.mask);
    reportBlock(*this, why);
  }
  forLanes(lane.mask & warps_[base / 32].arrived, [&](unsigned k) {
    const Lane& other = warps_[base / 32].lanes[k];
    if ((other.mask >> me & 1) == 0) return;
    if (other.function == lane.function && other.mask == lane.mask) return;
    std::snprintf(why, sizeof(why),
                  "mismatched warp functions: thread %u calls %s with mask 0x%08x, thread %u %s "
                  "with mask 0x%08x",
                  thread, nameOf(lane.function), lane.mask, base + k, nameOf(other.function),
                  other.mask);
    reportBlock(*this, why);
  });
}

void Worker::completeWarpFunction(unsigned warp_number, unsigned mask) {
  Warp& warp = warps_[warp_number];
  const unsigned me = current_ % 32;
  computeResults(warp.lanes[me].function, warp.lanes, mask);
  warp.arrived &= ~mask;
  if (warp.lanes[me].function == WarpFunction::kSync) {
    forLanes(mask, [&](unsigned k) { sanitizer::acquire(&warp.arrivals[k]); });
    forLanes(mask, [&](unsigned k) { sanitizer::release(&warp.departures[k]); });
  }
  forLanes(mask & ~(1u << me), [&](unsigned k) {
    state_[warp_number * 32 + k] = State::kReady;
    ready_.push(warp_number * 32 + k);
  });
  ++progress_;
}

// The lanes that are together are those that come to the same call before any of them can go on. So
// the call waits until no other thread of the block can run.
unsigned Worker::activeMask(const char* file, int line) {
  const unsigned me = current_;
  wait_[me] = {"__activemask()", file, line};
  state_[me] = State::kInActiveMask;
  active_mask_[me] = 0;
  ++in_active_mask_;
  park();
  return active_mask_[me];
}

void Worker::openActiveMasks() {
  for (unsigned thread = 0; thread < size_; ++thread) {
    if (state_[thread] != State::kInActiveMask) continue;
    const unsigned base = thread & ~31u;
    for (unsigned other = base; other < size_ && other < base + 32; ++other) {
      const bool together = state_[other] == State::kInActiveMask &&
                            wait_[other].line == wait_[thread].line &&
                            std::strcmp(wait_[other].file, wait_[thread].file) == 0;
      if (together) active_mask_[thread] |= 1u << (other - base);
    }
    ready_.push(thread);
  }
  for (unsigned thread = 0; thread < size_; ++thread) {
    if (state_[thread] == State::kInActiveMask) state_[thread] = State::kReady;
  }
  in_active_mask_ = 0;
  ++progress_;
}

std::uint64_t warpFunction(WarpFunction function, unsigned mask, std::uint64_t value, int operand,
                           int width, const char* file, int line) {
  requireKernel("a warp function", file, line);
  return this_worker->warpFunction({function, mask, operand, width, value, 0}, file, line);
}

unsigned activeMask(const char* file, int line) {
  requireKernel("__activemask()", file, line);
  return this_worker->activeMask(file, line);
}

}  // namespace cuda_on_cpu
