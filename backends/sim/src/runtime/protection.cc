#include "runtime/protection.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace infini_train::sim::protection {
namespace {

struct Pages {
  void* block;
  std::size_t bytes;
  int device;
};

/// By the address of the first page. Never destroyed: work may outlive main().
struct State {
  std::mutex mutex;
  std::map<std::uintptr_t, Pages> pages;
  int running = 0;
  struct sigaction previous {};
};

State& GetState() {
  static State& state = *new State;
  return state;
}

std::size_t PageSize() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

std::size_t RoundUp(std::size_t value, std::size_t unit = PageSize()) {
  return (value + unit - 1) / unit * unit;
}

/// Of the first page: closing and opening huge pages is much less work.
constexpr std::size_t kHugePage = std::size_t{2} << 20;
std::size_t Alignment(std::size_t bytes) {
  return bytes >= kHugePage ? kHugePage : PageSize();
}

void SetAccess(std::uintptr_t address, std::size_t bytes, int access) {
  ::mprotect(reinterpret_cast<void*>(address), RoundUp(bytes), access);
}

void SetAccess(State& state, int access) {
  for (const auto& [address, pages] : state.pages)
    SetAccess(address, pages.bytes, access);
}

/// Runs on the thread that touched a closed page, which holds no lock and allocates nothing here.
void OnViolation(int signal, siginfo_t* info, void*) {
  State& state = GetState();
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  {
    const std::lock_guard lock(state.mutex);
    auto after = state.pages.upper_bound(address);
    if (after == state.pages.begin() ||
        address - (--after)->first >= RoundUp(after->second.bytes)) {
      // Somebody else's: the access is repeated, with the handler that was there before.
      ::sigaction(signal, &state.previous, nullptr);
      return;
    }
    char line[200];
    const int length = std::snprintf(
        line, sizeof(line),
        "host code touched device memory; copy it to the host first: address %p, device sim:%d, "
        "byte %zu of an allocation of %zu\n",
        info->si_addr, after->second.device, static_cast<std::size_t>(address - after->first),
        after->second.bytes);
    static_cast<void>(!::write(STDERR_FILENO, line, static_cast<std::size_t>(length)));
  }
  // Not by repeating the access: the pages may be open by then.
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void InstallHandler(State& state) {
  struct sigaction action {};
  action.sa_sigaction = &OnViolation;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGSEGV, &action, &state.previous);
  // A leak checker reads all memory when the program has ended.
  std::atexit(&BeginWork);
}

}  // namespace

std::size_t PaddedSize(std::size_t bytes) {
  return bytes > SIZE_MAX - 2 * kHugePage ? SIZE_MAX : RoundUp(bytes) + Alignment(bytes);
}

void* Close(void* block, std::size_t bytes, int device) {
  State& state = GetState();
  const std::uintptr_t address = RoundUp(reinterpret_cast<std::uintptr_t>(block), Alignment(bytes));
  // Only a hint; a kernel without huge pages refuses.
  ::madvise(reinterpret_cast<void*>(address), RoundUp(bytes), MADV_HUGEPAGE);
  const std::lock_guard lock(state.mutex);
  static const bool installed = (InstallHandler(state), true);
  static_cast<void>(installed);
  state.pages.emplace(address, Pages{block, bytes, device});
  if (state.running == 0) SetAccess(address, bytes, PROT_NONE);
  return reinterpret_cast<void*>(address);
}

void* Release(void* pages) {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  const auto found = state.pages.find(reinterpret_cast<std::uintptr_t>(pages));
  if (found == state.pages.end()) return nullptr;
  SetAccess(found->first, found->second.bytes, PROT_READ | PROT_WRITE);
  void* block = found->second.block;
  state.pages.erase(found);
  return block;
}

void BeginWork() {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  if (state.running++ == 0) SetAccess(state, PROT_READ | PROT_WRITE);
}

void EndWork() {
  State& state = GetState();
  const std::lock_guard lock(state.mutex);
  if (--state.running == 0) SetAccess(state, PROT_NONE);
}

}  // namespace infini_train::sim::protection
