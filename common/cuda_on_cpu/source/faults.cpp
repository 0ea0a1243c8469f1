// SPDX-License-Identifier: MIT
//
// Invalid addresses: the closed pages round stacks and device memory turn them into a signal, and
// this turns the signal into a sentence.
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda_on_cpu/kernel_variables.h"
#include "device_memory.h"
#include "options.h"
#include "report.h"
#include "worker.h"

namespace cuda_on_cpu {
namespace {

constexpr std::size_t kSignalStackBytes = 128 << 10;

// Where the program was loaded: what a position-independent program's addresses are relative to.
std::uintptr_t loadAddress() {
  std::uintptr_t result = 0;
  const auto look = [](dl_phdr_info* info, std::size_t, void* p) {
    *static_cast<std::uintptr_t*>(p) = info->dlpi_addr;
    return 1;
  };
  dl_iterate_phdr(look, &result);
  return result;
}

void describeDeviceFault(const DeviceBlock& block, const char* address, const char* at) {
  const long byte = static_cast<long>(address - block.data);
  const bool in_kernel = this_worker != nullptr && this_worker->inBlock();
  if (!in_kernel && byte >= 0 && byte < static_cast<long>(block.bytes) && !block.freed) {
    reportLine(
        "host code touched device memory%s: byte %ld of a cudaMalloc block of %zu bytes; "
        "copy it with cudaMemcpy()",
        at, byte, block.bytes);
  }
  reportLine("%s%s: byte %ld of a cudaMalloc block of %zu bytes",
             block.freed ? "access to freed device memory" : "access out of bounds", at, byte,
             block.bytes);
}

void onFault(int signal, siginfo_t* info, void*) {
  // The first thread to come here speaks. Others wait for the end; the same one again is hopeless.
  static std::atomic<pid_t> speaker{0};
  const pid_t me = static_cast<pid_t>(syscall(SYS_gettid));
  pid_t nobody = 0;
  const bool first = speaker.compare_exchange_strong(nobody, me);
  while (!first && nobody != me) pause();
  if (first) {
    // The frames: this function, the kernel's return from the signal, the instruction at fault.
    void* frames[3];
    const int count = backtrace(frames, 3);
    char at[300] = "";
    const char* line = count == 3 ? sourceLine(frames[2]) : "";
    if (*line != '\0') std::snprintf(at, sizeof(at), " at %s", line);
    const char* address = static_cast<const char*>(info->si_addr);
    const bool in_kernel = this_worker != nullptr && this_worker->inBlock();
    if (in_kernel && this_worker->ownsGuard(address)) {
      reportLine(
          "stack overflow%s: a CUDA thread has %zu bytes of stack here; "
          "CUDA_ON_CPU_STACK=BYTES changes that",
          at, options().stack_bytes);
    }
    if (const DeviceBlock* block = findBlock(address)) describeDeviceFault(*block, address, at);
    if (in_kernel && this_worker->ownsSharedEnd(address)) {
      reportLine("access out of bounds%s: past the end of the dynamic shared memory, %zu bytes", at,
                 this_worker->request().dynamic_shared);
    }
    if (in_kernel) {
      reportLine("access to the invalid address %p%s", static_cast<const void*>(address), at);
    }
  }
  // The host code's own fault: let it end as it would without us.
  ::signal(signal, SIG_DFL);
}

}  // namespace

const char* sourceLine(void* instruction) {
  static char text[256];
  text[0] = '\0';
  char program[64], address[32];
  std::snprintf(program, sizeof(program), "/proc/%d/exe", static_cast<int>(getpid()));
  std::snprintf(
      address, sizeof(address), "0x%zx",
      static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(instruction) - loadAddress()));
  int ends[2];
  if (pipe(ends) != 0) return text;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    close(2);
    execlp("addr2line", "addr2line", "-i", "-e", program, address, static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  // Innermost first: skip the functions of our headers that were compiled into the kernel.
  if (std::FILE* lines = fdopen(ends[0], "r")) {
    char line[256];
    while (text[0] == '\0' && std::fgets(line, sizeof(line), lines) != nullptr) {
      line[std::strcspn(line, "\n")] = '\0';
      if (char* note = std::strstr(line, " (discriminator")) *note = '\0';
      const bool known = std::strchr(line, '?') == nullptr;
      const bool ours = std::strstr(line, "cuda_on_cpu/include/") != nullptr;
      if (known && !ours) std::strcpy(text, line);
    }
    std::fclose(lines);
  }
  if (child > 0) waitpid(child, nullptr, 0);
  return text;
}

void watchAddresses() {
  static __thread bool watching = false;
  if (watching || sanitizer::kAddress) return;
  watching = true;
  void* frames[1];
  backtrace(frames, 1);  // The first call loads a library, which a signal handler must not.
  stack_t stack{};
  stack.ss_sp = std::malloc(kSignalStackBytes);
  stack.ss_size = kSignalStackBytes;
  struct sigaction action {};
  action.sa_sigaction = onFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  if (stack.ss_sp == nullptr || sigaltstack(&stack, nullptr) != 0 ||
      sigaction(SIGSEGV, &action, nullptr) != 0 || sigaction(SIGBUS, &action, nullptr) != 0) {
    std::perror("cuda_on_cpu: invalid addresses will not be reported");
  }
}

}  // namespace cuda_on_cpu

#if defined(CUDA_ON_CPU_ADDRESS_SANITIZER)
// The sanitizer calls this before its own report.
extern "C" void __asan_on_error() {
  using cuda_on_cpu::this_worker;
  if (this_worker == nullptr || !this_worker->inBlock()) return;
  std::fprintf(stderr, "cuda_on_cpu: kernel %s, block (%u,%u,%u), thread (%u,%u,%u):\n",
               this_worker->request().kernel, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,
               threadIdx.y, threadIdx.z);
}
extern "C" void __ubsan_on_report() {
  __asan_on_error();
}
#endif
