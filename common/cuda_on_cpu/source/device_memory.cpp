// SPDX-License-Identifier: MIT
#include "device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "cuda_on_cpu/host_api.h"
#include "host_state.h"
#include "options.h"
#include "report.h"
#include "worker.h"

namespace cuda_on_cpu {
namespace {

constexpr std::size_t kAlwaysUnset = 1 << 20;  // bytes of a new block that are filled in any case

std::vector<DeviceBlock>& blocks() {
  static auto* const list = new std::vector<DeviceBlock>;
  return *list;
}
std::recursive_mutex& mutex() {
  static auto* const result = new std::recursive_mutex;
  return *result;
}
int open_count = 0;

std::size_t pageBytes() {
  static const std::size_t bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

bool watched(const DeviceBlock& block) {
  return !block.managed && !block.freed;
}

void setOpen(const DeviceBlock& block, bool open) {
  if (sanitizer::kAddress) {
    if (open) {
      sanitizer::open(block.data, block.bytes);
    } else {
      sanitizer::close(block.data, block.bytes);
    }
  } else if (options().check) {
    mprotect(block.map + pageBytes(), block.map_bytes - 2 * pageBytes(),
             open ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
}

bool mapBlock(std::size_t bytes, DeviceBlock* block) {
  if (sanitizer::kAddress) {  // Its own red zones are better than pages.
    void* p = nullptr;
    if (posix_memalign(&p, 256, bytes) != 0) return false;
    block->map = block->data = static_cast<char*>(p);
    block->map_bytes = bytes;
    return true;
  }
  const std::size_t page = pageBytes();
  const std::size_t open = (bytes + page - 1) / page * page;
  block->map_bytes = open + 2 * page;
  void* map =
      mmap(nullptr, block->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return false;
  block->map = static_cast<char*>(map);
  // Threads that step through an array by the width of the grid touch a page each.
  madvise(map, block->map_bytes, MADV_HUGEPAGE);
  mprotect(block->map, page, PROT_NONE);
  mprotect(block->map + page + open, page, PROT_NONE);
  block->data = block->map + page;
  // In the checks the block ends right at the closed page, as far as alignment for uint4 allows.
  if (options().check) block->data += open - ((bytes + 15) & ~std::size_t{15});
  return true;
}

// The open bytes between the first closed page and the block.
char* frontOf(const DeviceBlock& block) {
  return block.map + pageBytes();
}

cudaError_t allocate(void** pointer, std::size_t bytes, bool managed) {
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  std::size_t free_bytes, total;
  cudaMemGetInfo(&free_bytes, &total);
  DeviceBlock block{};
  if (bytes > total || !mapBlock(bytes, &block)) return setLastError(cudaErrorMemoryAllocation);
  block.bytes = bytes;
  block.managed = managed;
  watchAddresses();
  // New memory holds zeros, which would hide that nobody has set it.
  const bool all = options().check || bytes <= kAlwaysUnset;
  std::memset(block.data, kUnset, all ? bytes : kAlwaysUnset);
  if (options().check) {
    std::memset(frontOf(block), kUnset, static_cast<std::size_t>(block.data - frontOf(block)));
    std::memset(block.data + bytes, kUnset, -bytes % 16);
  }
  const std::lock_guard<std::recursive_mutex> lock(mutex());
  blocks().push_back(block);
  if (!managed && open_count == 0) setOpen(block, false);
  *pointer = block.data;
  return cudaSuccess;
}

const DeviceBlock* liveBlock(const void* pointer) {
  const DeviceBlock* block = findBlock(pointer);
  return block != nullptr && !block->freed ? block : nullptr;
}

bool inDevice(const void* pointer, std::size_t bytes) {
  const DeviceBlock* block = liveBlock(pointer);
  const char* p = static_cast<const char*>(pointer);
  return block != nullptr && p >= block->data && p + bytes <= block->data + block->bytes;
}

bool inHost(const void* pointer) {
  const DeviceBlock* block = findBlock(pointer);
  return block == nullptr || block->managed;
}

std::size_t availableMemory(std::size_t total) {
  std::size_t kib = 0;
  if (std::FILE* file = std::fopen("/proc/meminfo", "r")) {
    char line[120];
    while (std::fgets(line, sizeof(line), file) != nullptr) {
      if (std::sscanf(line, "MemAvailable: %zu kB", &kib) == 1) break;
    }
    std::fclose(file);
  }
  return kib != 0 ? kib * 1024 : total / 2;
}

}  // namespace

const DeviceBlock* findBlock(const void* address) {
  const char* p = static_cast<const char*>(address);
  const DeviceBlock* freed = nullptr;
  for (const DeviceBlock& block : blocks()) {
    if (p < block.map || p >= block.map + block.map_bytes) continue;
    if (!block.freed) return &block;
    freed = &block;
  }
  return freed;
}

DeviceAccess::DeviceAccess() {
  const std::lock_guard<std::recursive_mutex> lock(mutex());
  if (open_count++ > 0 || !(options().check || sanitizer::kAddress)) return;
  for (const DeviceBlock& block : blocks()) {
    if (watched(block)) setOpen(block, true);
  }
}

DeviceAccess::~DeviceAccess() {
  const std::lock_guard<std::recursive_mutex> lock(mutex());
  if (--open_count > 0 || !(options().check || sanitizer::kAddress)) return;
  for (const DeviceBlock& block : blocks()) {
    if (watched(block)) setOpen(block, false);
  }
}

void checkPointers(const LaunchRequest& request) {
  if (!options().check) return;
  for (int i = 0; i < request.pointer_count; ++i) {
    const void* pointer = const_cast<const void*>(request.pointers[i].value);
    if (pointer == nullptr) continue;
    const DeviceBlock* block = findBlock(pointer);
    if (block != nullptr && !block->freed) continue;
    reportLine(
        "%s:%d: argument %d of kernel %s (for block (0,0,0), thread (0,0,0) and all others) "
        "%s; a kernel can use only memory from cudaMalloc()",
        request.file, request.line, request.pointers[i].number, request.kernel,
        block == nullptr ? "is a host pointer" : "points to device memory that was freed");
  }
}

void checkCanaries(const LaunchRequest& request) {
  if (!options().check) return;
  const std::lock_guard<std::recursive_mutex> lock(mutex());
  for (const DeviceBlock& block : blocks()) {
    if (block.freed || block.map == block.data) continue;
    const char* const end = block.data + block.bytes;
    const char* const closed = block.map + block.map_bytes - pageBytes();
    const auto written = [](char c) { return static_cast<unsigned char>(c) != kUnset; };
    const char* at = std::find_if<const char*>(frontOf(block), block.data, written);
    if (at == block.data) at = std::find_if(end, closed, written);
    if (at == closed) continue;
    reportLine(
        "%s:%d: kernel %s, one of its threads: write out of bounds: byte %td of a "
        "cudaMalloc block of %zu bytes",
        request.file, request.line, request.kernel, at - block.data, block.bytes);
  }
}

cudaError_t copyToSymbol(void* symbol, std::size_t size, const void* source, std::size_t bytes,
                         std::size_t offset, cudaMemcpyKind kind) {
  if (offset > size || bytes > size - offset) return setLastError(cudaErrorInvalidValue);
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDefault) {
    return setLastError(cudaErrorInvalidMemcpyDirection);
  }
  std::memcpy(static_cast<char*>(symbol) + offset, source, bytes);
  return cudaSuccess;
}

cudaError_t copyFromSymbol(const void* symbol, std::size_t size, void* target, std::size_t bytes,
                           std::size_t offset, cudaMemcpyKind kind) {
  if (offset > size || bytes > size - offset) return setLastError(cudaErrorInvalidValue);
  if (kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyDefault) {
    return setLastError(cudaErrorInvalidMemcpyDirection);
  }
  std::memcpy(target, static_cast<const char*>(symbol) + offset, bytes);
  return cudaSuccess;
}

// From now on the variable counts as device memory, which the host code can touch nevertheless.
cudaError_t symbolAddress(void** pointer, void* symbol, std::size_t size) {
  const std::lock_guard<std::recursive_mutex> lock(mutex());
  *pointer = symbol;
  if (liveBlock(symbol) != nullptr) return cudaSuccess;
  char* const data = static_cast<char*>(symbol);
  blocks().push_back({data, size, data, size, false, true});
  return cudaSuccess;
}

}  // namespace cuda_on_cpu

using cuda_on_cpu::setLastError;

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *total_bytes = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * cuda_on_cpu::pageBytes();
  *free_bytes = cuda_on_cpu::availableMemory(*total_bytes);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  return cuda_on_cpu::allocate(pointer, bytes, false);
}
cudaError_t cudaMallocManaged(void** pointer, std::size_t bytes, unsigned) {
  return cuda_on_cpu::allocate(pointer, bytes, true);
}
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {  // A kernel can read it, too.
  return cuda_on_cpu::allocate(pointer, bytes, true);
}

cudaError_t cudaFree(void* pointer) {
  using namespace cuda_on_cpu;
  if (pointer == nullptr) return cudaSuccess;
  const std::lock_guard<std::recursive_mutex> lock(mutex());
  auto& all = blocks();
  const auto block = std::find_if(all.begin(), all.end(), [pointer](const DeviceBlock& b) {
    return b.data == pointer && !b.freed && b.map_bytes != 0;
  });
  if (block == all.end()) return setLastError(cudaErrorInvalidValue);
  if (sanitizer::kAddress) {
    sanitizer::open(block->data, block->bytes);
    std::free(block->map);
    all.erase(block);
  } else if (options().check) {  // The addresses stay taken, so that a later use is recognized.
    mprotect(block->map, block->map_bytes, PROT_NONE);
    madvise(block->map, block->map_bytes, MADV_DONTNEED);
    block->freed = true;
  } else {
    munmap(block->map, block->map_bytes);
    all.erase(block);
  }
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
  return cudaFree(pointer);
}

cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
  using namespace cuda_on_cpu;
  if (bytes == 0) return cudaSuccess;
  bool fits = true;
  switch (kind) {
    case cudaMemcpyHostToHost:
      fits = inHost(target) && inHost(source);
      break;
    case cudaMemcpyHostToDevice:
      fits = inDevice(target, bytes) && inHost(source);
      break;
    case cudaMemcpyDeviceToHost:
      fits = inHost(target) && inDevice(source, bytes);
      break;
    case cudaMemcpyDeviceToDevice:
      fits = inDevice(target, bytes) && inDevice(source, bytes);
      break;
    case cudaMemcpyDefault:
      fits = (findBlock(target) == nullptr || inDevice(target, bytes)) &&
             (findBlock(source) == nullptr || inDevice(source, bytes));
      break;
    default:
      return setLastError(cudaErrorInvalidMemcpyDirection);
  }
  if (!fits) return setLastError(cudaErrorInvalidValue);
  const DeviceAccess access;
  std::memmove(target, source, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* pointer, int value, std::size_t bytes) {
  using namespace cuda_on_cpu;
  if (bytes == 0) return cudaSuccess;
  if (!inDevice(pointer, bytes)) return setLastError(cudaErrorInvalidValue);
  const DeviceAccess access;
  std::memset(pointer, value, bytes);
  return cudaSuccess;
}
