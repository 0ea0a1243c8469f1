// SPDX-License-Identifier: MIT
#include "report.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_on_cpu/kernel_variables.h"
#include "options.h"
#include "worker.h"

namespace cuda_on_cpu {
namespace {

constexpr std::size_t kMostRanges = 6;  // of threads, on one line

// Two workers may fail at the same time; the first one speaks, and the program ends with it.
std::mutex& speaking() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

[[noreturn]] void end() {
  std::fflush(stderr);
  std::_Exit(kReportStatus);
}

// "threads 0-31, 64": by their number in the block, x first.
std::string ranges(const std::vector<unsigned>& threads) {
  std::string text = threads.size() == 1 ? "thread " : "threads ";
  std::size_t count = 0;
  for (std::size_t i = 0; i < threads.size();) {
    std::size_t end = i + 1;
    while (end < threads.size() && threads[end] == threads[end - 1] + 1) ++end;
    if (count == kMostRanges) return text + ", ... (" + std::to_string(threads.size()) + " in all)";
    if (count++ > 0) text += ", ";
    text += std::to_string(threads[i]);
    if (end - i > 1) text += "-" + std::to_string(threads[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace

void Worker::describeThreads(std::FILE* out) const {
  struct Group {
    std::string where;
    std::vector<unsigned> threads;
  };
  std::vector<Group> groups;
  for (unsigned thread = 0; thread < size_; ++thread) {
    std::string where;
    const Wait& wait = wait_[thread];
    const std::string place =
        std::string(wait.what) + " at " + wait.file + ":" + std::to_string(wait.line);
    switch (state_[thread]) {
      case State::kFresh:
        where = "not started";
        break;
      case State::kDone:
        where = "returned from the kernel";
        break;
      case State::kRunning:
        where = wait.line ? "running; last in " + place : "running";
        break;
      case State::kReady:
        where = "ready to go on after " + place;
        break;
      default:
        where = "waiting in " + place;
        break;
    }
    Group* group = nullptr;
    for (Group& g : groups) {
      if (g.where == where) group = &g;
    }
    if (group == nullptr) group = &groups.emplace_back(Group{where, {}});
    group->threads.push_back(thread);
  }
  for (const Group& group : groups) {
    std::fprintf(out, "  %s: %s\n", ranges(group.threads).c_str(), group.where.c_str());
  }
}

void reportBlock(const Worker& worker, const char* why) {
  speaking().lock();  // Never unlocked.
  std::fflush(stdout);
  const uint3 block = worker.block();
  std::fprintf(stderr, "cuda_on_cpu: kernel %s (launched at %s:%d), block (%u,%u,%u): %s\n",
               worker.request().kernel, worker.request().file, worker.request().line, block.x,
               block.y, block.z, why);
  worker.describeThreads(stderr);
  end();
}

void reportLine(const char* format, ...) {
  speaking().lock();
  std::fflush(stdout);
  char text[600];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  if (this_worker != nullptr && this_worker->inBlock()) {
    std::fprintf(stderr, "cuda_on_cpu: kernel %s, block (%u,%u,%u), thread (%u,%u,%u): %s\n",
                 this_worker->request().kernel, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,
                 threadIdx.y, threadIdx.z, text);
  } else {
    std::fprintf(stderr, "cuda_on_cpu: %s\n", text);
  }
  end();
}

void requireKernel(const char* what, const char* file, int line) {
  if (this_worker != nullptr && this_worker->inBlock()) return;
  reportLine("%s:%d: %s is called outside a kernel", file, line, what);
}

void trap(const char* file, int line) {
  reportLine("%s:%d: __trap()", file, line);
}

int barrier(BarrierKind kind, int predicate, const char* file, int line) {
  requireKernel("a barrier", file, line);
  return this_worker->barrier(kind, predicate, file, line);
}

void yield(const char* what, const char* file, int line) {
  if (this_worker != nullptr && this_worker->inBlock()) this_worker->yield(what, file, line);
}

void mayBeSpinning(const void* address, const char* what, const char* file, int line) {
  if (this_worker != nullptr && this_worker->inBlock()) {
    this_worker->mayBeSpinning(address, what, file, line);
  }
}

}  // namespace cuda_on_cpu
