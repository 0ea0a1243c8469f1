// SPDX-License-Identifier: MIT
//
// A launch: its limits, the workers that share its blocks, and the watch over them.
#include "cuda_on_cpu/launch.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda_on_cpu/kernel_variables.h"
#include "device_memory.h"
#include "host_state.h"
#include "options.h"
#include "report.h"
#include "worker.h"

namespace cuda_on_cpu {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What the workers of one launch share.
struct Job {
  const LaunchRequest* request;
  std::uint64_t blocks;
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> alone{false};  // all but worker 0 are to rest
  std::atomic<unsigned> resting{0};
};

// Decides whether the launch is faster with one worker than with all. Threads that all update the
// same few addresses are: the workers then fight for the cache lines, while one alone needs not
// even a locked instruction. So worker 0 measures both for a moment, and the better one goes on.
class Pace {
 public:
  explicit Pace(Job* job)
      : job_(job), undecided_(options().workers > 1 && job->blocks >= 16 * options().workers) {}

  // Worker 0 calls this after each block.
  void step() {
    if (!undecided_) return;
    const std::uint64_t handed_out = job_->next.load(std::memory_order_relaxed);
    switch (phase_) {
      case Phase::kStarting:  // The other workers wake up.
        if (secondsSince(start_) >= kMoment / 4) begin(Phase::kTogether, handed_out);
        break;
      case Phase::kTogether:
        if (!longEnough(handed_out)) break;
        together_ = rate(handed_out);
        job_->alone = true;
        phase_ = Phase::kSettling;
        break;
      case Phase::kSettling:
        if (job_->resting.load() != options().workers - 1) break;
        Worker::ownEverything(true);
        begin(Phase::kAlone, handed_out);
        break;
      case Phase::kAlone:
        if (!longEnough(handed_out)) break;
        undecided_ = false;
        if (rate(handed_out) < together_) release();
        break;
    }
  }

  // Lets the others go on.
  void release() {
    Worker::ownEverything(false);
    job_->alone = false;
  }

 private:
  enum class Phase { kStarting, kTogether, kSettling, kAlone };
  static constexpr double kMoment = 2e-3;  // seconds

  void begin(Phase phase, std::uint64_t handed_out) {
    phase_ = phase;
    start_ = Clock::now();
    first_ = handed_out;
  }
  bool longEnough(std::uint64_t handed_out) const {
    return handed_out - first_ >= options().workers && secondsSince(start_) >= kMoment;
  }
  double rate(std::uint64_t handed_out) const {
    return static_cast<double>(handed_out - first_) / secondsSince(start_);
  }

  Job* job_;
  bool undecided_;
  Phase phase_ = Phase::kStarting;
  Clock::time_point start_ = Clock::now();
  std::uint64_t first_ = 0;
  double together_ = 0;
};

void rest(Job* job) {
  ++job->resting;
  while (job->alone) std::this_thread::sleep_for(std::chrono::microseconds(200));
  --job->resting;
}

// Blocks are handed out in order, so a block may wait for an earlier one: that one is running.
void shareBlocks(Job* job, Worker* worker, unsigned sharers) {
  worker->prepareMemory(job->request->dynamic_shared, sharers == 1 && !sanitizer::kThread);
  if (sanitizer::kThread) {  // Always the same blocks for a worker, so that races show each time.
    for (std::uint64_t b = worker->id(); b < job->blocks; b += sharers) {
      worker->runBlock(*job->request, b);
    }
    return;
  }
  Pace pace(job);
  for (;;) {
    if (worker->id() != 0 && job->alone) rest(job);
    const std::uint64_t block = job->next.fetch_add(1, std::memory_order_relaxed);
    if (block >= job->blocks) break;
    worker->runBlock(*job->request, block);
    if (worker->id() == 0 && sharers > 1) pace.step();
  }
  if (worker->id() == 0) {
    pace.release();
  } else {
    ++job->resting;
  }
}

// The workers. The thread that launches is worker 0, except when memory is watched: then shared
// memory is filled with a pattern, and that thread has variables of its own beside it.
class Workers {
 public:
  void run(Job* job) {
    const std::lock_guard<std::mutex> one_at_a_time(launching_);
    const bool host_works = !options().check;
    const unsigned sharers = job->blocks == 1 && host_works ? 1 : options().workers;
    startThreads(host_works ? 1 : 0);
    {
      const std::lock_guard<std::mutex> lock(start_mutex_);
      job_ = job;
      sharers_ = sharers;
      if (sharers > 1 || !host_works) {
        busy_ = static_cast<unsigned>(threads_.size());
        ++generation_;
        start_.notify_all();
      }
      launched_ = Clock::now();
      running_ = true;
    }
    if (host_works) {
      if (workers_[0] == nullptr) workers_[0] = new Worker(0);
      this_worker = workers_[0];
      watchAddresses();
      shareBlocks(job, this_worker, sharers);
      this_worker = nullptr;
    }
    // Another mutex than the one they start by, or the thread sanitizer would think that a worker
    // that starts late comes after one that is done.
    std::unique_lock<std::mutex> lock(done_mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
    running_ = false;
  }

  ~Workers() {
    if (this_worker != nullptr) return;  // exit() in a kernel: the others cannot be waited for
    {
      const std::lock_guard<std::mutex> lock(start_mutex_);
      stopping_ = true;
      start_.notify_all();
    }
    {
      const std::lock_guard<std::mutex> lock(watch_mutex_);
      watched_enough_ = true;
      watch_end_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
    if (watch_.joinable()) watch_.join();
  }

 private:
  void startThreads(unsigned first) {
    if (workers_.empty()) {
      workers_.assign(options().workers, nullptr);
      watch_ = std::thread([this] { watch(); });
    }
    for (unsigned id = first + static_cast<unsigned>(threads_.size()); id < options().workers;
         ++id) {
      workers_[id] = new Worker(id);
      threads_.emplace_back([this, id] { serve(workers_[id]); });
    }
  }

  void serve(Worker* worker) {
    watchAddresses();
    this_worker = worker;
    for (std::uint64_t seen = 0;;) {
      std::unique_lock<std::mutex> lock(start_mutex_);
      start_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
      Job* const job = job_;
      const unsigned sharers = sharers_;
      lock.unlock();
      shareBlocks(job, worker, sharers);
      const std::lock_guard<std::mutex> done(done_mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  // Ends the program when no thread of any block has got anywhere for too long.
  void watch() {
    const double patience = options().patience_seconds;
    std::uint64_t seen = 0;
    Clock::time_point since = Clock::now();
    std::unique_lock<std::mutex> lock(watch_mutex_);
    const auto pause = std::chrono::milliseconds(static_cast<int>(patience * 1000 / 8));
    // By the system's clock, because older thread sanitizers do not know how to wait by another.
    while (!watch_end_.wait_until(lock, std::chrono::system_clock::now() + pause,
                                  [this] { return watched_enough_; })) {
      std::uint64_t progress = generation_;
      for (const Worker* worker : workers_) {
        if (worker != nullptr) progress += worker->progress();
      }
      if (!running_ || progress != seen) {
        seen = progress;
        since = Clock::now();
      } else if (secondsSince(since) > patience && secondsSince(launched_) > patience) {
        reportSpin(patience);
      }
    }
  }

  [[noreturn]] void reportSpin(double patience) {
    char why[200];
    std::snprintf(why, sizeof(why),
                  "endless spin: no thread has got anywhere for %g s. (A loop that reads a flag "
                  "keeps its worker; CUDA_ON_CPU_PATIENCE=SECONDS waits longer.)",
                  patience);
    for (const Worker* worker : workers_) {
      if (worker != nullptr && worker->inBlock()) reportBlock(*worker, why);
    }
    reportLine("%s", why);
  }

  std::mutex launching_, start_mutex_, done_mutex_, watch_mutex_;
  std::condition_variable start_, done_, watch_end_;
  std::vector<Worker*> workers_;  // never deleted: their stacks may be in use at exit
  std::vector<std::thread> threads_;
  std::thread watch_;
  Job* job_ = nullptr;
  unsigned sharers_ = 0;
  std::atomic<std::uint64_t> generation_{0};
  unsigned busy_ = 0;
  std::atomic<bool> running_{false};
  Clock::time_point launched_;
  bool stopping_ = false, watched_enough_ = false;
};

Workers& workers() {
  static Workers result;
  return result;
}

// A GPU's limits, and the errors CUDA gives for them.
cudaError_t checkLimits(const LaunchRequest& request) {
  const dim3 grid = request.grid, block = request.block;
  const bool grid_fits = grid.x > 0 && grid.x <= 0x7fffffffu && grid.y > 0 && grid.y <= 65535 &&
                         grid.z > 0 && grid.z <= 65535;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const bool block_fits = threads > 0 && block.x <= kMostThreads && block.y <= kMostThreads &&
                          block.z <= 64 && threads <= kMostThreads;
  if (!grid_fits || !block_fits) return cudaErrorInvalidConfiguration;
  if (request.dynamic_shared > dynamicSharedLimit()) return cudaErrorInvalidValue;
  return cudaSuccess;
}

void sayWhereKernelsRan() {
  std::fprintf(stderr,
               "cuda_on_cpu: the kernels ran on %u CPU thread%s; times say nothing about a GPU\n",
               options().workers, options().workers == 1 ? "" : "s");
}

}  // namespace

void launch(const LaunchRequest& request) {
  if (this_worker != nullptr && this_worker->inBlock()) {
    reportLine("%s:%d: a launch inside a kernel is not supported", request.file, request.line);
  }
  const cudaError_t error = checkLimits(request);
  if (error != cudaSuccess) {
    setLastError(error);
    return;
  }
  Workers& all = workers();
  static const bool announced = std::atexit(sayWhereKernelsRan) == 0;
  (void)announced;
  checkPointers(request);
  const DeviceAccess access;
  gridDim = request.grid;
  blockDim = request.block;
  Job job;
  job.request = &request;
  job.blocks = std::uint64_t{request.grid.x} * request.grid.y * request.grid.z;
  all.run(&job);
  checkCanaries(request);
}

}  // namespace cuda_on_cpu
