#include "trainer/train/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "trainer/base/file.h"
#include "trainer/base/status.h"
#include "trainer/base/text.h"

namespace lenet {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxFileBytes = int64_t{1} << 31;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxDimensions = 8;
constexpr char kMetadataKey[] = "__metadata__";

struct DTypeInfo {
  DType dtype;
  absl::string_view name;
  int64_t bytes;
};
constexpr DTypeInfo kDTypes[] = {
    {DType::kF32, "F32", 4}, {DType::kF64, "F64", 8}, {DType::kU8, "U8", 1},
    {DType::kI64, "I64", 8}, {DType::kU64, "U64", 8},
};

const DTypeInfo& InfoOf(DType dtype) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.dtype == dtype) return info;
  }
  return kDTypes[0];
}

// bytes_each * the product of `shape`, or nothing if that is negative or above 2^63 - 1.
std::optional<int64_t> ShapeBytes(const std::vector<int64_t>& shape, int64_t bytes_each) {
  int64_t bytes = bytes_each;
  for (const int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(bytes, dimension, &bytes)) return std::nullopt;
  }
  return bytes;
}

// Of a name or value in a message.
std::string Brief(absl::string_view text) { return Shown(text, 80); }

struct TensorEntry {
  std::string name;
  std::optional<DType> dtype;
  std::optional<std::vector<int64_t>> shape;
  std::optional<std::vector<int64_t>> offsets;
};

// Takes the header's JSON as events, so that neither nesting nor numbers of any size cost memory, and accepts the
// format's two levels alone.
class HeaderHandler : public Json::json_sax_t {
 public:
  std::vector<TensorEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string error;

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("true or false"); }
  bool number_integer(number_integer_t value) override { return Unexpected(absl::StrCat("the number ", value)); }
  bool number_float(number_float_t, const string_t& text) override {
    return Unexpected(absl::StrCat("the number ", Brief(text)));
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::kShape && state_ != State::kOffsets) return Unexpected(absl::StrCat("the number ", value));
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Unexpected(absl::StrCat("the number ", value));
    }
    std::vector<int64_t>& list = state_ == State::kShape ? *entries.back().shape : *entries.back().offsets;
    const size_t most = state_ == State::kShape ? kMaxDimensions : 2;
    if (list.size() == most) return Fail(absl::StrCat(Where(), " has more than ", most, " numbers"));
    list.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::kMetadata) {
      if (!metadata.emplace(key_, std::move(value)).second) return Fail(absl::StrCat(Where(), " stands twice"));
      return true;
    }
    if (state_ != State::kTensor || key_ != "dtype") return Unexpected("a string");
    if (entries.back().dtype) return Fail(absl::StrCat(Where(), " stands twice"));
    for (const DTypeInfo& info : kDTypes) {
      if (info.name == absl::string_view(value)) entries.back().dtype = info.dtype;
    }
    if (!entries.back().dtype) {
      return Fail(absl::StrCat(Where(), " = \"", Brief(value), "\": must be F32, F64, U8, I64 or U64"));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::kStart:
        state_ = State::kTop;
        return true;
      case State::kTop:
        if (key_ == kMetadataKey) {
          if (seen_metadata_) return Fail("__metadata__ stands twice");
          seen_metadata_ = true;
          state_ = State::kMetadata;
        } else {
          entries.push_back({.name = key_});
          state_ = State::kTensor;
        }
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    if (state_ == State::kTensor && key_ != "dtype" && key_ != "shape" && key_ != "data_offsets") {
      return Fail(absl::StrCat(Where(), " is not known"));
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::kTensor) {
      const TensorEntry& entry = entries.back();
      if (!entry.dtype || !entry.shape || !entry.offsets || entry.offsets->size() != 2) {
        return Fail(absl::StrCat("tensor ", Brief(entry.name), " lacks ",
                                 !entry.dtype   ? "dtype"
                                 : !entry.shape ? "shape"
                                                : "data_offsets of two numbers"));
      }
    }
    state_ = state_ == State::kTop ? State::kEnd : State::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::kTensor || key_ == "dtype") return Unexpected("an array");
    std::optional<std::vector<int64_t>>& list = key_ == "shape" ? entries.back().shape : entries.back().offsets;
    if (list) return Fail(absl::StrCat(Where(), " stands twice"));
    list.emplace();
    state_ = key_ == "shape" ? State::kShape : State::kOffsets;
    return true;
  }

  bool end_array() override {
    state_ = State::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    return Fail(absl::StrCat("the header is not JSON at its byte ", position));
  }

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  std::string Where() const {
    switch (state_) {
      case State::kStart:
      case State::kEnd:
        return "the header";
      case State::kTop:
        return Brief(key_);
      case State::kMetadata:
        return absl::StrCat("__metadata__ ", Brief(key_));
      default:
        return absl::StrCat("tensor ", Brief(entries.back().name), ": ", Brief(key_));
    }
  }

  bool Unexpected(absl::string_view what) { return Fail(absl::StrCat(Where(), ": ", what, " is not expected here")); }

  bool Fail(std::string message) {
    error = std::move(message);
    return false;
  }

  State state_ = State::kStart;
  std::string key_;
  bool seen_metadata_ = false;
};

absl::Status Damaged(const std::string& name, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(name, ": ", what));
}

std::string HeaderText(const TensorFile& file, const std::vector<const std::pair<const std::string, Tensor>*>& order) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!file.metadata.empty()) {
    nlohmann::ordered_json& metadata = header[kMetadataKey] = nlohmann::ordered_json::object();
    for (const auto& [key, value] : file.metadata) metadata[key] = value;
  }
  int64_t offset = 0;
  for (const auto* named : order) {
    const Tensor& tensor = named->second;
    const int64_t end = offset + static_cast<int64_t>(tensor.data.size());
    const absl::string_view dtype = InfoOf(tensor.dtype).name;
    header[named->first] = {{"dtype", std::string(dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  // Text that is not UTF-8 is written with replacement characters rather than thrown on.
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

absl::StatusOr<TensorFile> ParseTensorFile(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.size() < kLengthBytes) {
    return Damaged(name, absl::StrCat("holds ", bytes.size(), " bytes: must hold the 8 of the header's length"));
  }
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) header_bytes |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  const uint64_t most = std::min<uint64_t>(kMaxHeaderBytes, bytes.size() - kLengthBytes);
  if (header_bytes > most) {
    return Damaged(name, absl::StrCat("header length ", header_bytes, ": must be at most ", most));
  }
  const char* text = reinterpret_cast<const char*>(bytes.data()) + kLengthBytes;
  HeaderHandler header;
  if (!Json::sax_parse(text, text + header_bytes, &header)) return Damaged(name, header.error);

  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + header_bytes);
  std::vector<TensorEntry*> order;
  for (TensorEntry& entry : header.entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const TensorEntry* a, const TensorEntry* b) { return *a->offsets < *b->offsets; });

  TensorFile file;
  int64_t expected = 0;
  for (TensorEntry* entry : order) {
    const int64_t begin = (*entry->offsets)[0];
    const int64_t end = (*entry->offsets)[1];
    const std::string tensor = absl::StrCat("tensor ", Brief(entry->name));
    if (begin != expected) {
      return Damaged(name, absl::StrCat(tensor, ": begins at byte ", begin, ": must begin at ", expected,
                                        ", where the one before it ends"));
    }
    if (end < begin || end > static_cast<int64_t>(data.size())) {
      return Damaged(name, absl::StrCat(tensor, ": ends at byte ", end, ": must be in ", begin, " to ", data.size()));
    }
    const DTypeInfo& dtype = InfoOf(*entry->dtype);
    const std::optional<int64_t> shape_bytes = ShapeBytes(*entry->shape, dtype.bytes);
    if (shape_bytes != end - begin) {
      return Damaged(name, absl::StrCat(tensor, ": spans ", end - begin, " bytes: its shape and ", dtype.name, " need ",
                                        shape_bytes ? absl::StrCat(*shape_bytes) : "more than 2^63"));
    }
    Tensor value = {.dtype = *entry->dtype, .shape = *std::move(entry->shape)};
    const auto view = data.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    value.data.assign(view.begin(), view.end());
    if (!file.tensors.emplace(entry->name, std::move(value)).second) {
      return Damaged(name, absl::StrCat(tensor, " stands twice"));
    }
    expected = end;
  }
  if (expected != static_cast<int64_t>(data.size())) {
    return Damaged(name, absl::StrCat("holds ", data.size(), " bytes of tensors: the header describes ", expected));
  }
  file.metadata = std::move(header.metadata);
  return file;
}

absl::StatusOr<TensorFile> ReadTensorFile(const std::filesystem::path& path) {
  LENET_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kMaxFileBytes));
  return ParseTensorFile(std::as_bytes(std::span<const char>(content)), path.string());
}

absl::Status WriteTensorFile(const std::filesystem::path& path, const TensorFile& file) {
  std::vector<const std::pair<const std::string, Tensor>*> order;
  for (const auto& named : file.tensors) {
    const auto& [name, tensor] = named;
    const std::optional<int64_t> bytes = ShapeBytes(tensor.shape, InfoOf(tensor.dtype).bytes);
    if (name == kMetadataKey || tensor.shape.size() > kMaxDimensions ||
        bytes != static_cast<int64_t>(tensor.data.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat(path.string(), ": tensor ", Brief(name), ": its name, shape or size does not fit the format"));
    }
    order.push_back(&named);
  }
  // The widest first keeps every tensor aligned to its own elements.
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return InfoOf(a->second.dtype).bytes > InfoOf(b->second.dtype).bytes;
  });

  const std::string header = HeaderText(file, order);
  std::byte length[kLengthBytes];
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<std::byte>((static_cast<uint64_t>(header.size()) >> (8 * i)) & 0xff);
  }
  std::vector<std::span<const std::byte>> pieces = {length, std::as_bytes(std::span<const char>(header))};
  for (const auto* named : order) pieces.push_back(named->second.data);
  return WriteFileAtomic(path, pieces);
}

}  // namespace lenet
