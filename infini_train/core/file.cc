#include "infini_train/core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "infini_train/core/error.h"

namespace infini_train {
namespace {

constexpr size_t kBufferSize = size_t{1} << 20;

[[noreturn]] void ThrowErrno(const std::string& path, const char* action) {
  const int code = errno;
  throw Error(fmt::format("{}: cannot {}: {}", path, action, std::strerror(code)));
}

void WriteAll(int fd, const std::byte* data, size_t size, const std::string& path) {
  while (size > 0) {
    const ssize_t written = ::write(fd, data, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      ThrowErrno(path, "write");
    }
    data += written;
    size -= static_cast<size_t>(written);
  }
}

// Closes a descriptor at the end of a scope.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const Descriptor file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) ThrowErrno(path_, "open");
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) ThrowErrno(path_, "examine");
  if (!S_ISREG(info.st_mode)) {
    throw Error(fmt::format("{}: expected a file, found {}", path_,
                            S_ISDIR(info.st_mode) ? "a folder" : "a special file"));
  }
  if (info.st_size == 0) return;
  void* address =
      ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) ThrowErrno(path_, "map into memory");
  data_ = static_cast<const std::byte*>(address);
  size_ = static_cast<size_t>(info.st_size);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::ReadAhead(size_t begin, size_t size) const {
  if (begin >= size_) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t first = begin / page * page;
  ::madvise(const_cast<std::byte*>(data_) + first, std::min(size, size_ - begin) + begin - first,
            MADV_WILLNEED);
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), buffer_(std::make_unique<std::byte[]>(kBufferSize)) {
  static std::atomic<unsigned> counter{0};
  temporary_ = fmt::format("{}.tmp-{}-{}", path_, ::getpid(), counter.fetch_add(1));
  fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) ThrowErrno(path_, "write");
}

AtomicFile::~AtomicFile() {
  Discard();
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      buffered_(std::exchange(other.buffered_, 0)),
      buffer_(std::move(other.buffer_)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(buffered_, other.buffered_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

void AtomicFile::Write(std::span<const std::byte> bytes) {
  size_ += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    if (buffered_ == 0 && bytes.size() >= kBufferSize) {
      WriteAll(fd_, bytes.data(), bytes.size(), path_);
      return;
    }
    const size_t count = std::min(kBufferSize - buffered_, bytes.size());
    std::memcpy(buffer_.get() + buffered_, bytes.data(), count);
    buffered_ += count;
    bytes = bytes.subspan(count);
    if (buffered_ == kBufferSize) Flush();
  }
}

void AtomicFile::Write(std::string_view text) {
  Write(std::as_bytes(std::span(text)));
}

void AtomicFile::Overwrite(int64_t offset, std::span<const std::byte> bytes) {
  if (offset < 0 || offset + static_cast<int64_t>(bytes.size()) > size_) {
    throw Error(fmt::format("{}: cannot overwrite bytes {} to {} of {} written", path_, offset,
                            offset + static_cast<int64_t>(bytes.size()), size_));
  }
  Flush();
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (written < 0) {
      if (errno == EINTR) continue;
      ThrowErrno(path_, "write");
    }
    offset += written;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::Flush() {
  WriteAll(fd_, buffer_.get(), std::exchange(buffered_, 0), path_);
}

void AtomicFile::Commit() {
  Flush();
  if (::fsync(fd_) != 0) ThrowErrno(path_, "write");
  if (::close(std::exchange(fd_, -1)) != 0) {
    const int code = errno;
    ::unlink(temporary_.c_str());
    errno = code;
    ThrowErrno(path_, "write");
  }
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int code = errno;
    ::unlink(temporary_.c_str());
    errno = code;
    ThrowErrno(path_, "replace");
  }
  // The rename itself is durable once the folder is.
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const Descriptor directory{
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (directory.fd >= 0) ::fsync(directory.fd);
}

void AtomicFile::Discard() noexcept {
  if (fd_ < 0) return;
  ::close(std::exchange(fd_, -1));
  ::unlink(temporary_.c_str());
}

std::string ReadFile(const std::string& path) {
  const MappedFile file(path);
  return std::string(file.text());
}

bool PathExists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

bool IsFolder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

std::optional<std::int32_t> LeadingInt32(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::int32_t number = 0;
  if (!file.read(reinterpret_cast<char*>(&number), sizeof(number))) return std::nullopt;
  return number;
}

std::vector<std::filesystem::path> ListFolder(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    paths.push_back(entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory &&
      error != std::errc::not_a_directory) {
    throw Error(fmt::format("{}: cannot list the folder: {}", folder.string(), error.message()));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

void CreateFolder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    throw Error(fmt::format("{}: cannot create the folder: {}", path.string(), error.message()));
  }
}

void WriteFileAtomically(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.Write(content);
  file.Commit();
}

}  // namespace infini_train
