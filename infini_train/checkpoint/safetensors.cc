#include "infini_train/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "infini_train/checkpoint/host_values.h"
#include "infini_train/core/error.h"
#include "infini_train/core/file.h"
#include "infini_train/core/json/json_node.h"
#include "infini_train/core/json/untrusted_json.h"
#include "infini_train/core/storage.h"

namespace infini_train::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";
struct TypeName {
  std::string_view name;
  DataType dtype;
};
/// In the order in which a file's data is laid out, widest first.
constexpr TypeName kTypeNames[] = {
    {"I64", DataType::kInt64},  {"F64", DataType::kFloat64},   {"F32", DataType::kFloat32},
    {"I32", DataType::kInt32},  {"BF16", DataType::kBFloat16}, {"F16", DataType::kFloat16},
    {"U16", DataType::kUInt16}, {"U8", DataType::kUInt8},      {"BOOL", DataType::kBool}};

std::size_t TypeOrder(DataType dtype) {
  const auto* found = std::find_if(std::begin(kTypeNames), std::end(kTypeNames),
                                   [&](const TypeName& entry) { return entry.dtype == dtype; });
  return static_cast<std::size_t>(found - std::begin(kTypeNames));
}

/// What Transformers expects of a file's metadata.
const std::map<std::string, std::string>& FormatMetadata() {
  static const std::map<std::string, std::string> metadata = {{"format", "pt"}};
  return metadata;
}

DataType StoredType(const Tensor& tensor, std::optional<DataType> dtype) {
  return IsFloatingPoint(tensor.dtype()) ? dtype.value_or(tensor.dtype()) : tensor.dtype();
}

std::size_t StoredBytes(const Tensor& tensor, std::optional<DataType> dtype) {
  return static_cast<std::size_t>(tensor.numel()) * SizeOf(StoredType(tensor, dtype));
}

std::vector<std::int64_t> Integers(const JsonNode& list) {
  std::vector<std::int64_t> values;
  for (std::size_t i = 0; i < list.Size(); ++i)
    values.push_back(list.At(i).Index(INT64_MAX));
  return values;
}

DataType ParseType(const JsonNode& field) {
  std::vector<std::string_view> names;
  for (const auto& [name, dtype] : kTypeNames) {
    if (field.value().is_string() && field.String() == name) return dtype;
    names.push_back(name);
  }
  field.FailExpected(fmt::format("one of {}", fmt::join(names, ", ")));
}

/// The header's text. Throws Error unless the file has room for it.
std::string_view FindHeader(const MappedFile& file) {
  const std::string_view bytes = file.text();
  std::uint64_t size = 0;
  if (bytes.size() < sizeof(size)) {
    throw Error(fmt::format("{}: expected at least 8 bytes, found {}", file.path(), bytes.size()));
  }
  std::memcpy(&size, bytes.data(), sizeof(size));
  if (size > kMaxHeaderBytes || size > bytes.size() - sizeof(size) || size < 2) {
    throw Error(fmt::format("{}: header of {} bytes does not fit a file of {} bytes", file.path(),
                            size, bytes.size()));
  }
  const std::string_view header = bytes.substr(sizeof(size), size);
  if (header[0] != '{')
    throw Error(fmt::format("{}: expected a JSON object as header", file.path()));
  return header;
}

/// "model-00001-of-00002.safetensors"
bool IsShardName(std::string_view name) {
  constexpr std::string_view kPattern = "model-#####-of-#####.safetensors";
  return std::equal(
      name.begin(), name.end(), kPattern.begin(), kPattern.end(),
      [](char c, char wanted) { return wanted == '#' ? c >= '0' && c <= '9' : c == wanted; });
}

/// Removes what an earlier save left, the index before the shards that it names.
void RemoveOtherWeights(const std::filesystem::path& folder, const std::set<std::string>& kept) {
  std::vector<std::string> stale;
  for (const std::filesystem::path& path : ListFolder(folder)) {
    const std::string name = path.filename().string();
    if (!kept.contains(name) && (name == kSingleName || IsShardName(name))) stale.push_back(name);
  }
  if (!kept.contains(std::string(kIndexName))) stale.emplace(stale.begin(), kIndexName);
  std::error_code error;
  for (auto name = stale.begin(); !error && name != stale.end(); ++name) {
    std::filesystem::remove(folder / *name, error);
  }
  if (error) {
    throw Error(
        fmt::format("{}: cannot remove older weights: {}", folder.string(), error.message()));
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(std::make_shared<MappedFile>(path.string())) {
  const std::string_view text = FindHeader(*file_);
  const std::size_t data_begin = sizeof(std::uint64_t) + text.size();
  const Json header = ParseJson(text, file_->path(), RepeatedKeys::kRefuse);
  JsonNode(header, file_->path()).ForEachMember([&](const std::string& name, const JsonNode& node) {
    if (name != kMetadata) {
      const std::string where = fmt::format("{}: tensor {}", file_->path(), name);
      entries_[name] = ParseEntry(JsonNode(node.value(), where), data_begin);
      return;
    }
    node.ForEachMember([&](const std::string& field, const JsonNode& content) {
      metadata_[field] = content.String();
    });
  });
  CheckCoverage(data_begin);
}

/// The entry that a header has, with offsets from the start of the file.
SafetensorsFile::Entry SafetensorsFile::ParseEntry(const JsonNode& node,
                                                   std::size_t data_begin) const {
  const DataType dtype = ParseType(node.Required("dtype"));
  const std::vector<std::int64_t> extents = Integers(node.Required("shape"));
  const JsonNode data_offsets = node.Required("data_offsets");
  const std::vector<std::int64_t> offsets = Integers(data_offsets);
  if (offsets.size() != 2) data_offsets.FailExpected("two offsets");
  Dims shape;
  std::int64_t elements = 0;
  try {
    shape = Dims(extents);
    elements = Numel(shape);
  } catch (const Error& error) {
    node.Fail(error.what());
  }
  std::int64_t bytes = 0;
  const auto available = static_cast<std::int64_t>(file_->bytes().size() - data_begin);
  if (__builtin_mul_overflow(elements, static_cast<std::int64_t>(SizeOf(dtype)), &bytes) ||
      offsets[1] < offsets[0] || offsets[1] > available || offsets[1] - offsets[0] != bytes) {
    node.Fail(
        fmt::format("shape {} of {} does not agree with data_offsets [{}, {}] and {} bytes of data",
                    shape.ToString(), ToString(dtype), offsets[0], offsets[1], available));
  }
  return {dtype, shape, data_begin + static_cast<std::size_t>(offsets[0]),
          data_begin + static_cast<std::size_t>(offsets[1])};
}

/// Throws Error unless the tensors cover the data exactly once.
void SafetensorsFile::CheckCoverage(std::size_t data_begin) const {
  std::vector<std::pair<std::string, Entry>> by_offset(entries_.begin(), entries_.end());
  std::sort(by_offset.begin(), by_offset.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.begin, a.second.end) < std::pair(b.second.begin, b.second.end);
  });
  std::size_t covered = data_begin;
  for (const auto& [name, entry] : by_offset) {
    if (entry.begin != covered) {
      throw Error(
          fmt::format("{}: tensor {}: data starts at {}, expected {}: tensors must neither "
                      "overlap nor leave holes",
                      path(), name, entry.begin - data_begin, covered - data_begin));
    }
    covered = entry.end;
  }
  if (covered != file_->bytes().size()) {
    throw Error(fmt::format("{}: {} bytes after the last tensor's data", path(),
                            file_->bytes().size() - covered));
  }
}

std::vector<std::string> SafetensorsFile::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_)
    names.push_back(name);
  return names;
}

const SafetensorsFile::Entry& SafetensorsFile::At(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw Error(fmt::format("{}: holds no tensor {}", path(), name));
  return found->second;
}

Tensor SafetensorsFile::Load(const std::string& name) const {
  const Entry& entry = At(name);
  const std::byte* data = file_->bytes().data() + entry.begin;
  const std::size_t bytes = entry.end - entry.begin;
  if (entry.dtype == DataType::kBool) {
    // Undefined in a bool, and a view cannot be made right.
    const std::byte* const wrong =
        std::find_if(data, data + bytes, [](std::byte value) { return value > std::byte{1}; });
    if (wrong != data + bytes) {
      throw Error(fmt::format("{}: tensor {}: expected 0 or 1 for a bool, found {}", path(), name,
                              std::to_integer<int>(*wrong)));
    }
  }
  if (reinterpret_cast<std::uintptr_t>(data) % SizeOf(entry.dtype) != 0 || bytes == 0) {
    Tensor copy = Tensor::Empty(entry.shape, entry.dtype);
    copy.CopyFromHost(data, bytes);
    return copy;
  }
  // The mapping is private and read-only: a write through the view would fault, not reach the file.
  auto storage =
      std::make_shared<Storage>(Device(), const_cast<std::byte*>(data), bytes, [file = file_] {});
  return Tensor::FromStorage(std::move(storage), entry.dtype, entry.shape,
                             ContiguousStrides(entry.shape));
}

std::size_t SafetensorsFile::ReadAhead(const std::string& name) const {
  const Entry& entry = At(name);
  file_->ReadAhead(entry.begin, entry.end - entry.begin);
  return entry.end - entry.begin;
}

void WriteSafetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata,
                      std::optional<DataType> dtype) {
  NamedTensors ordered = tensors;
  std::sort(ordered.begin(), ordered.end(), [&](const auto& a, const auto& b) {
    return std::pair(TypeOrder(StoredType(a.second, dtype)), a.first) <
           std::pair(TypeOrder(StoredType(b.second, dtype)), b.first);
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  std::set<std::string_view> names;
  std::size_t offset = 0;
  for (const auto& [name, tensor] : ordered) {
    if (name == kMetadata) {
      throw Error(fmt::format("{}: {} cannot be a tensor's name", path.string(), kMetadata));
    }
    if (!names.insert(name).second) {
      throw Error(fmt::format("{}: tensor {} is to be written twice", path.string(), name));
    }
    const std::size_t bytes = StoredBytes(tensor, dtype);
    nlohmann::ordered_json entry;
    entry["dtype"] = kTypeNames[TypeOrder(StoredType(tensor, dtype))].name;
    entry["shape"] = std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end());
    entry["data_offsets"] = {offset, offset + bytes};
    header[name] = std::move(entry);
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  AtomicFile file(path.string());
  const auto length = static_cast<std::uint64_t>(text.size());
  file.Write(std::as_bytes(std::span(&length, 1)));
  file.Write(text);
  for (const auto& [name, tensor] : ordered) {
    const DataType stored = StoredType(tensor, dtype);
    if (tensor.device().is_cpu() && tensor.IsContiguous() && tensor.dtype() == stored) {
      file.Write(std::span(static_cast<const std::byte*>(tensor.raw_data()), tensor.nbytes()));
    } else {
      file.Write(HostValues(tensor, stored));
    }
  }
  file.Commit();
}

SafetensorsFolder::SafetensorsFolder(const std::filesystem::path& folder) {
  const std::filesystem::path index = folder / kIndexName;
  if (!PathExists(index)) {
    const std::filesystem::path file = folder / kSingleName;
    if (!PathExists(file)) {
      throw Error(
          fmt::format("{}: holds neither {} nor {}", folder.string(), kSingleName, kIndexName));
    }
    files_.emplace_back(file);
    path_ = file.string();
    for (const std::string& name : files_[0].Names())
      file_of_[name] = 0;
    return;
  }
  path_ = index.string();
  const Json json = ParseJson(ReadFile(path_), path_, RepeatedKeys::kRefuse);
  std::map<std::string, std::size_t> opened;
  std::set<std::string> absent_files;
  std::vector<std::string> absent_tensors;
  const JsonNode map = JsonNode(json, path_).Required("weight_map");
  map.ForEachMember([&](const std::string& name, const JsonNode& node) {
    const std::string file = node.value().is_string() ? node.String() : "";
    if (file.empty() || file.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
      node.FailExpected("a file name");
    if (!opened.contains(file)) {
      if (!PathExists(folder / file)) {
        absent_files.insert(file);
        return;
      }
      opened[file] = files_.size();
      files_.emplace_back(folder / file);
    }
    if (!files_[opened[file]].Contains(name)) {
      absent_tensors.push_back(fmt::format("{} in {}", name, file));
    }
    file_of_[name] = opened[file];
  });
  if (!absent_files.empty()) {
    throw Error(fmt::format("{}: names files that are not there: {}", path_,
                            fmt::join(absent_files, ", ")));
  }
  if (!absent_tensors.empty()) {
    throw Error(fmt::format("{}: names tensors that are not there: {}", path_,
                            fmt::join(absent_tensors, ", ")));
  }
}

std::vector<std::string> SafetensorsFolder::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_)
    names.push_back(name);
  return names;
}

const SafetensorsFile& SafetensorsFolder::FileOf(const std::string& name) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end()) throw Error(fmt::format("{}: holds no tensor {}", path_, name));
  return files_[found->second];
}

void WriteSafetensorsFolder(const std::filesystem::path& folder, const NamedTensors& tensors,
                            std::int64_t max_shard_bytes, std::optional<DataType> dtype) {
  std::vector<NamedTensors> shards(1);
  std::int64_t total = 0;
  std::int64_t in_shard = 0;
  for (const auto& entry : tensors) {
    const auto bytes = static_cast<std::int64_t>(StoredBytes(entry.second, dtype));
    if (in_shard > 0 && in_shard + bytes > max_shard_bytes) {
      shards.emplace_back();
      in_shard = 0;
    }
    shards.back().push_back(entry);
    in_shard += bytes;
    total += bytes;
  }
  std::set<std::string> written;
  if (shards.size() == 1) {
    WriteSafetensors(folder / kSingleName, shards[0], FormatMetadata(), dtype);
    written.emplace(kSingleName);
  } else {
    nlohmann::ordered_json index;
    index["metadata"]["total_size"] = total;
    std::map<std::string, std::string> weight_map;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const std::string name =
          fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
      WriteSafetensors(folder / name, shards[i], FormatMetadata(), dtype);
      written.insert(name);
      for (const auto& [tensor, value] : shards[i])
        weight_map[tensor] = name;
    }
    index["weight_map"] = weight_map;
    WriteFileAtomically((folder / kIndexName).string(), index.dump(2) + "\n");
    written.emplace(kIndexName);
  }
  RemoveOtherWeights(folder, written);
}

}  // namespace infini_train::checkpoint
