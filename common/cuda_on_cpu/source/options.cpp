// SPDX-License-Identifier: MIT
#include "options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace cuda_on_cpu {
namespace {

#if defined(CUDA_ON_CPU_ADDRESS_SANITIZER) || defined(CUDA_ON_CPU_THREAD_SANITIZER)
constexpr std::size_t kStackBytes = 512 << 10;  // Instrumented frames are larger,
constexpr double kPatienceSeconds = 120;        // and the code is slower.
#else
constexpr std::size_t kStackBytes = 128 << 10;
constexpr double kPatienceSeconds = 20;
#endif
// Each stack needs two mappings, 1024 stacks a worker may be needed, and Linux allows 65,530.
constexpr unsigned kMostWorkers = 16;

[[noreturn]] void misunderstood(const char* name, const char* text, const char* wanted) {
  std::fprintf(stderr, "cuda_on_cpu: %s=%s: expected %s\n", name, text, wanted);
  std::exit(2);
}

double number(const char* name, double otherwise, double least, double most, const char* wanted) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(value >= least && value <= most)) {
    misunderstood(name, text, wanted);
  }
  return value;
}

unsigned defaultWorkers() {
  const unsigned processors = std::max(1u, std::thread::hardware_concurrency());
#if defined(CUDA_ON_CPU_THREAD_SANITIZER)
  return std::min(4u, std::max(2u, processors));  // Two blocks race only on two workers.
#else
  return std::min(kMostWorkers, processors);
#endif
}

void readOrder(Options* result) {
  const char* text = std::getenv("CUDA_ON_CPU_ORDER");
  if (text == nullptr || std::strcmp(text, "ascending") == 0) return;
  if (std::strcmp(text, "descending") == 0) {
    result->order = Order::kDescending;
    return;
  }
  char* end = nullptr;
  if (std::strncmp(text, "random:", 7) == 0) result->seed = std::strtoull(text + 7, &end, 10);
  if (end == nullptr || end == text + 7 || *end != '\0') {
    misunderstood("CUDA_ON_CPU_ORDER", text, "ascending, descending or random:SEED");
  }
  result->order = Order::kRandom;
}

Options read() {
  Options result{};
  result.workers = static_cast<unsigned>(
      number("CUDA_ON_CPU_WORKERS", defaultWorkers(), 1, kMostWorkers, "a number from 1 to 16"));
#if defined(CUDA_ON_CPU_ADDRESS_SANITIZER)
  result.workers = 1;  // Shared arrays are ordinary statics in this build.
#endif
  const char* check = std::getenv("CUDA_ON_CPU_CHECK");
  result.check = check != nullptr && std::strcmp(check, "0") != 0;
  result.stack_bytes = static_cast<std::size_t>(
      number("CUDA_ON_CPU_STACK", kStackBytes, 16 << 10, 1 << 30, "bytes, from 16384 on"));
  result.stack_bytes = (result.stack_bytes + 0xffff) & ~std::size_t{0xffff};
  result.patience_seconds =
      number("CUDA_ON_CPU_PATIENCE", kPatienceSeconds, 0.1, 1e6, "seconds, from 0.1 on");
  readOrder(&result);
  return result;
}

}  // namespace

const Options& options() {
  static const Options result = read();
  return result;
}

}  // namespace cuda_on_cpu
