#pragma once

#include <cstddef>

namespace infini_train::sim {

/// Device memory that only device work may touch (INFINITRAIN_SIM_CHECK=memory). Its pages are
/// closed unless work is running; host code that touches them ends the process with one line on
/// stderr and SIGSEGV.
namespace protection {

/// Bytes to ask the runtime for, so that `bytes` fit into pages of their own.
std::size_t PaddedSize(std::size_t bytes);

/// Closes the pages for `bytes` in a block of PaddedSize(bytes) on a device; returns where they
/// begin. The first call installs the signal handler.
void* Close(void* block, std::size_t bytes, int device);

/// Opens the pages of Close for good and returns the block; null for any other pointer.
void* Release(void* pages);

/// Device work begins and ends: all pages are open as long as any is running. Called by the threads
/// that run it.
void BeginWork();
void EndWork();

}  // namespace protection
}  // namespace infini_train::sim
