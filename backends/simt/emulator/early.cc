#include "backends/simt/emulator/early.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "backends/simt/emulator/fault.h"

namespace infini_train::simt {
namespace emulator {
namespace {

struct Range {
  const std::byte* begin;
  const std::byte* end;

  bool Contains(const Range& other) const {
    return std::less_equal<>{}(begin, other.begin) && std::less_equal<>{}(other.end, end);
  }
};

Range RangeOf(const void* address, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(address);
  return {begin, begin + bytes};
}

/// What the lanes of the thread's block have named.
thread_local std::vector<Range> named;

bool IsNamed(const Range& range) {
  return std::any_of(named.begin(), named.end(),
                     [&](const Range& other) { return other.Contains(range); });
}

}  // namespace

void NameEarlyReads(const void* address, std::size_t bytes) {
  const Range range = RangeOf(address, bytes);
  if (!IsNamed(range)) named.push_back(range);
}

void ForgetEarlyReads() {
  named.clear();
}

void CheckEarlyRead(const void* address, std::size_t bytes, const Place& place) {
  if (IsNamed(RangeOf(address, bytes))) return;
  ThrowFault(
      fmt::format("read before WaitForEarlier(): address {} is not in what ReadsEarly() names",
                  address),
      place);
}

void ThrowEarlyWrite(const Place& place) {
  ThrowFault("write before WaitForEarlier()", place);
}

}  // namespace emulator

}  // namespace infini_train::simt
