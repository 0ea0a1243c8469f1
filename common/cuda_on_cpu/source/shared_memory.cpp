// SPDX-License-Identifier: MIT
//
// Where the shared memory of a worker's block is. `__shared__` is static thread_local, so it lies
// in the program's block of thread-local storage, and so does the dynamic part, unless the checks
// or the address sanitizer want it to end where nothing else begins.
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda_on_cpu/atomics.h"
#include "cuda_on_cpu/kernel_variables.h"
#include "options.h"
#include "report.h"
#include "worker.h"

namespace cuda_on_cpu {

__thread char* dynamic_shared;
__thread OwnedRange owned_range;

namespace {

alignas(128) __thread char dynamic_memory[kMostDynamicShared];

// The program's thread-local storage, as this thread has it.
struct ThreadLocal {
  char* begin = nullptr;
  std::size_t initialized = 0;  // bytes at the front that are no __shared__ variables
  std::size_t bytes = 0;
};

ThreadLocal findThreadLocal() {
  ThreadLocal result;
  const auto look = [](dl_phdr_info* info, std::size_t, void* p) {
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& header = info->dlpi_phdr[i];
      if (header.p_type != PT_TLS) continue;
      *static_cast<ThreadLocal*>(p) = {static_cast<char*>(info->dlpi_tls_data), header.p_filesz,
                                       header.p_memsz};
    }
    return 1;  // The program is the first of the list, and only it counts.
  };
  dl_iterate_phdr(look, &result);
  return result;
}

// Memory of exactly this size, at whose end an access out of bounds is caught.
char* memoryWithEnd(std::size_t bytes) {
  if (sanitizer::kAddress) {
    void* p = nullptr;
    if (posix_memalign(&p, 128, bytes) != 0) return nullptr;
    return static_cast<char*>(p);
  }
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t rounded = (bytes + 15) & ~std::size_t{15};
  const std::size_t open = (rounded + page - 1) / page * page;
  void* map =
      mmap(nullptr, open + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  mprotect(static_cast<char*>(map) + open, page, PROT_NONE);
  return static_cast<char*>(map) + open - rounded;
}

}  // namespace

void Worker::prepareMemory(std::size_t bytes, bool owns_everything) {
  dynamic_shared = dynamic_memory;
  if (sanitizer::kAddress || options().check) {
    if (dynamic_allocated_ == nullptr || dynamic_bytes_ != bytes) {
      if (sanitizer::kAddress) std::free(dynamic_allocated_);
      dynamic_allocated_ = bytes > 0 ? memoryWithEnd(bytes) : nullptr;
      if (bytes > 0 && dynamic_allocated_ == nullptr) reportLine("no memory for shared memory");
    }
    dynamic_shared = dynamic_allocated_;
    if (bytes > 0) std::memset(dynamic_shared, kUnset, bytes);
  }
  dynamic_bytes_ = bytes;
  ownEverything(owns_everything);
}

void Worker::ownEverything(bool everything) {
  if (sanitizer::kThread) {
    owned_range = {0, 0};
  } else if (everything) {
    owned_range = {0, ~std::uintptr_t{0}};
  } else {
    const ThreadLocal tls = findThreadLocal();
    owned_range = {reinterpret_cast<std::uintptr_t>(tls.begin), tls.bytes};
  }
}

// Between blocks, so that no block finds the values of the one before, nor zeros.
void Worker::unsetSharedMemory() {
  const ThreadLocal tls = findThreadLocal();
  char* const dynamic = dynamic_shared;
  const OwnedRange range = owned_range;
  std::memset(tls.begin + tls.initialized, kUnset, tls.bytes - tls.initialized);
  this_worker = this;
  dynamic_shared = dynamic;
  owned_range = range;
  if (dynamic_bytes_ > 0) std::memset(dynamic, kUnset, dynamic_bytes_);
}

// Whether the address lies in the closed page behind the dynamic shared memory.
bool Worker::ownsSharedEnd(const void* address) const {
  if (!options().check || dynamic_shared == nullptr) return false;
  const char* end = dynamic_shared + ((dynamic_bytes_ + 15) & ~std::size_t{15});
  const char* p = static_cast<const char*>(address);
  return p >= end && p < end + sysconf(_SC_PAGESIZE);
}

void checkIsSet(const void* address, unsigned bytes, const char* file, int line) {
  if (this_worker == nullptr || !this_worker->inBlock() || bytes < 4) return;
  const char* p = static_cast<const char*>(address);
  const ThreadLocal tls = findThreadLocal();
  const bool is_static = p >= tls.begin && p < tls.begin + tls.bytes;
  const bool is_dynamic =
      p >= dynamic_shared && p < dynamic_shared + this_worker->request().dynamic_shared;
  if (!is_static && !is_dynamic) return;
  for (unsigned i = 0; i < bytes; ++i) {
    if (static_cast<unsigned char>(p[i]) != kUnset) return;
  }
  reportLine("%s:%d: atomic update of shared memory that no thread has set", file, line);
}

}  // namespace cuda_on_cpu
