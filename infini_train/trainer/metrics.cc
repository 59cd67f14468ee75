#include "infini_train/trainer/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "infini_train/core/error.h"
#include "infini_train/core/file.h"

namespace infini_train::trainer {
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

File OpenFile(const std::string& path, const char* mode) {
  File file(std::fopen(path.c_str(), mode));
  if (!file) throw Error(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  return file;
}

void WriteAll(std::FILE* file, const std::string& path, std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() || std::fflush(file) != 0) {
    throw Error(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  }
}

/// The complete lines of steps up to `last_step`.
std::string LinesUpTo(const std::string& path, std::int64_t last_step) {
  const std::string content = ReadFile(path);
  std::string kept;
  std::size_t begin = 0;
  for (std::size_t end; (end = content.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = content.substr(begin, end - begin);
    const auto json = nlohmann::json::parse(line, nullptr, false);
    const bool repeated = json.is_object() && json.contains("step") &&
                          json["step"].is_number_integer() &&
                          json["step"].get<std::int64_t>() > last_step;
    if (!repeated) kept += line + "\n";
  }
  return kept;
}

class JsonLines final : public MetricsSink {
 public:
  JsonLines(const std::string& path, std::int64_t resume_after_step) : path_(path) {
    if (resume_after_step > 0 && PathExists(path)) {
      WriteFileAtomically(path, LinesUpTo(path, resume_after_step));
      file_ = OpenFile(path, "a");
    } else {
      file_ = OpenFile(path, "w");
    }
  }

  void Write(std::int64_t step, const Metrics& metrics) override {
    nlohmann::ordered_json line;
    line["step"] = step;
    for (const auto& [name, value] : metrics) {
      if (std::isfinite(value)) {
        line[name] = value;
      } else {
        line[name] = fmt::format("{}", value);
      }
    }
    WriteAll(file_.get(), path_, line.dump() + "\n");
  }

 private:
  std::string path_;
  File file_;
};

/// CRC-32C (Castagnoli), bit-reflected, as TFRecord files use it.
std::uint32_t Crc32c(std::string_view bytes) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> result{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit)
        value = (value >> 1) ^ (value & 1 ? 0x82F63B78u : 0u);
      result[i] = value;
    }
    return result;
  }();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xFFu];
  }
  return ~crc;
}

std::uint32_t MaskedCrc32c(std::string_view bytes) {
  const std::uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

template <typename T>
std::string LittleEndian(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
static_assert(std::endian::native == std::endian::little);

// Protocol-buffer fields: varint (wire type 0), fixed 64 (1), bytes (2), fixed 32 (5).
std::string Varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7)
    out += static_cast<char>((value & 0x7F) | 0x80);
  return out + static_cast<char>(value);
}
std::string Key(int field, int wire_type) {
  return Varint(static_cast<std::uint64_t>(field << 3 | wire_type));
}
std::string BytesField(int field, std::string_view bytes) {
  return Key(field, 2) + Varint(bytes.size()) + std::string(bytes);
}

double WallTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// An Event message: wall_time = 1, step = 2, file_version = 3, summary = 5.
std::string Event(std::int64_t step, const std::string& payload) {
  return Key(1, 1) + LittleEndian(WallTime()) + Key(2, 0) +
         Varint(static_cast<std::uint64_t>(step)) + payload;
}

class TensorBoard final : public MetricsSink {
 public:
  explicit TensorBoard(const std::string& folder) {
    CreateFolder(folder);
    path_ = fmt::format("{}/events.out.tfevents.{}.{}", folder,
                        static_cast<std::int64_t>(WallTime()), getpid());
    file_ = OpenFile(path_, "wb");
    WriteRecord(Event(0, BytesField(3, "brain.Event:2")));
  }

  void Write(std::int64_t step, const Metrics& metrics) override {
    // Summary.value = 1 { tag = 1, simple_value = 2 }.
    std::string summary;
    for (const auto& [name, value] : metrics) {
      summary +=
          BytesField(1, BytesField(1, name) + Key(2, 5) + LittleEndian(static_cast<float>(value)));
    }
    WriteRecord(Event(step, BytesField(5, summary)));
  }

 private:
  void WriteRecord(const std::string& data) {
    const std::string length = LittleEndian(static_cast<std::uint64_t>(data.size()));
    WriteAll(file_.get(), path_,
             length + LittleEndian(MaskedCrc32c(length)) + data + LittleEndian(MaskedCrc32c(data)));
  }

  std::string path_;
  File file_;
};

}  // namespace

std::unique_ptr<MetricsSink> OpenJsonLines(const std::string& path,
                                           std::int64_t resume_after_step) {
  return std::make_unique<JsonLines>(path, resume_after_step);
}

std::unique_ptr<MetricsSink> OpenTensorBoard(const std::string& folder) {
  return std::make_unique<TensorBoard>(folder);
}

}  // namespace infini_train::trainer
