#include "trainer/train/checkpoint.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/base/status.h"
#include "trainer/base/text.h"
#include "trainer/train/safetensors.h"

namespace lenet {
namespace {

static_assert(std::endian::native == std::endian::little, "the file's tensors are little-endian");

constexpr char kChecksumKey[] = "weights_checksum";
constexpr char kContentKey[] = "content_checksum";

// A tensor of the file and the flat buffer that it is a part of.
struct Slot {
  std::string name;
  const Parameter* parameter;
  int64_t offset;  // in floats: 0 .. flat_size in the parameters, then the state slots one after the other
};

std::vector<Slot> Slots(const Net& net, const OptimizerSpec& optimizer) {
  std::vector<Slot> slots;
  for (const Parameter& parameter : net.parameters()) slots.push_back({parameter.name, &parameter, parameter.offset});
  for (int s = 0; s < StateSlots(optimizer); ++s) {
    for (const Parameter& parameter : net.parameters()) {
      slots.push_back({absl::StrCat(kStatePrefix, StateSlotName(optimizer, s), "/", parameter.name), &parameter,
                       (s + 1) * net.flat_size() + parameter.offset});
    }
  }
  return slots;
}

std::string Hex(uint64_t value) { return absl::StrCat(absl::Hex(value, absl::kZeroPad16)); }

// 64-bit FNV-1a, of 8 bytes at a time and with the upper half mixed into the lower; each piece comes after its length.
// All that it does to the hash can be undone, so that a change of a single word always shows.
class ContentHash {
 public:
  void Add(std::span<const std::byte> bytes) {
    Mix(bytes.size());
    while (!bytes.empty()) {
      uint64_t word = 0;
      const size_t size = std::min(bytes.size(), sizeof(word));
      std::memcpy(&word, bytes.data(), size);
      Mix(word);
      bytes = bytes.subspan(size);
    }
  }
  void Add(const std::string& text) { Add(std::as_bytes(std::span<const char>(text))); }

  uint64_t value() const { return hash_; }

 private:
  void Mix(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x100000001b3;
    hash_ ^= hash_ >> 32;
  }

  uint64_t hash_ = 0xcbf29ce484222325;
};

// Of all metadata but itself, and of all tensors, each in the order of the names.
std::string ContentChecksum(const TensorFile& file) {
  ContentHash hash;
  for (const auto& [key, value] : file.metadata) {
    if (key == kContentKey) continue;
    hash.Add(key);
    hash.Add(value);
  }
  for (const auto& [name, tensor] : file.tensors) {
    hash.Add(name);
    hash.Add(tensor.data);
  }
  return Hex(hash.value());
}

absl::Status CheckContent(const TensorFile& file, const std::string& name) {
  const auto expected = file.metadata.find(kContentKey);
  if (expected == file.metadata.end()) return absl::OkStatus();
  const std::string checksum = ContentChecksum(file);
  if (expected->second == checksum) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(name, ": the content's checksum is ", checksum, ": must be ",
                                          Shown(expected->second, kMaxShownName), ", as the metadata says"));
}

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ","), "]"); }

absl::StatusOr<int64_t> Counter(const TensorFile& file, const std::string& name, const std::string& key) {
  const auto found = file.metadata.find(key);
  int64_t value = 0;
  if (found == file.metadata.end() || !absl::SimpleAtoi(found->second, &value) || value < 0) {
    return absl::DataLossError(absl::StrCat(name, ": metadata ", key, " = \"",
                                            found == file.metadata.end() ? "" : Shown(found->second, kMaxShownName),
                                            "\": must be a count"));
  }
  return value;
}

// Moves the net's parameters and the optimiser's state out of the file.
absl::Status TakeTensors(const std::string& name, const Net& net, const OptimizerSpec& optimizer, TensorFile* file,
                         Checkpoint* checkpoint) {
  const size_t flat_size = static_cast<size_t>(net.flat_size());
  checkpoint->parameters.resize(flat_size);
  checkpoint->state.resize(static_cast<size_t>(StateSlots(optimizer)) * flat_size);
  for (const Slot& slot : Slots(net, optimizer)) {
    const auto found = file->tensors.find(slot.name);
    if (found == file->tensors.end()) {
      return absl::FailedPreconditionError(absl::StrCat(name, ": has no tensor ", slot.name));
    }
    const Tensor& tensor = found->second;
    if (tensor.dtype != DType::kF32 || tensor.shape != slot.parameter->shape) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, ": tensor ", slot.name, ": ", tensor.dtype == DType::kF32 ? "shape " : "not F32, shape ",
                       ShapeText(tensor.shape), ": must be F32 of ", ShapeText(slot.parameter->shape)));
    }
    float* values = slot.offset < net.flat_size() ? checkpoint->parameters.data() + slot.offset
                                                  : checkpoint->state.data() + (slot.offset - net.flat_size());
    std::memcpy(values, tensor.data.data(), tensor.data.size());
    file->tensors.erase(found);
  }
  return absl::OkStatus();
}

absl::Status Surplus(const TensorFile& file, const std::string& name) {
  return absl::FailedPreconditionError(absl::StrCat(
      name, ": tensor ", Shown(file.tensors.begin()->first, kMaxShownName), " belongs to another net or optimizer"));
}

absl::StatusOr<Checkpoint> TakeApart(TensorFile file, const std::string& name, const Net& net,
                                     const OptimizerSpec& optimizer) {
  LENET_RETURN_IF_ERROR(CheckContent(file, name));
  Checkpoint checkpoint;
  LENET_ASSIGN_OR_RETURN(checkpoint.step, Counter(file, name, "step"));
  LENET_ASSIGN_OR_RETURN(checkpoint.epoch, Counter(file, name, "epoch"));
  LENET_RETURN_IF_ERROR(TakeTensors(name, net, optimizer, &file, &checkpoint));
  if (!file.tensors.empty()) return Surplus(file, name);
  const std::string checksum = Hex(WeightsChecksum(net, checkpoint.parameters));
  if (file.metadata[kChecksumKey] != checksum) {
    return absl::DataLossError(absl::StrCat(name, ": the weights' checksum is ", checksum, ": must be ",
                                            Shown(file.metadata[kChecksumKey], kMaxShownName),
                                            ", as the metadata says"));
  }
  checkpoint.metadata = std::move(file.metadata);
  return checkpoint;
}

}  // namespace

uint64_t WeightsChecksum(const Net& net, std::span<const float> flat) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const Parameter& parameter : net.parameters()) {
    for (int64_t i = 0; i < parameter.size; ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(flat[static_cast<size_t>(parameter.offset + i)]);
      for (int shift = 0; shift < 32; shift += 8) {
        hash ^= (bits >> shift) & 0xff;
        hash *= 0x100000001b3;
      }
    }
  }
  return hash;
}

absl::StatusOr<int64_t> SaveCheckpoint(const std::filesystem::path& path, const Net& net,
                                       const OptimizerSpec& optimizer, const Checkpoint& checkpoint) {
  const size_t flat_size = static_cast<size_t>(net.flat_size());
  const size_t state_size = static_cast<size_t>(StateSlots(optimizer)) * flat_size;
  if (checkpoint.parameters.size() != flat_size || checkpoint.state.size() != state_size) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": ", checkpoint.parameters.size(), " and ",
                                                   checkpoint.state.size(), " values: must be ", flat_size, " and ",
                                                   state_size));
  }
  TensorFile file;
  for (const Slot& slot : Slots(net, optimizer)) {
    const float* values = slot.offset < net.flat_size() ? checkpoint.parameters.data() + slot.offset
                                                        : checkpoint.state.data() + (slot.offset - net.flat_size());
    const auto bytes = std::as_bytes(std::span(values, static_cast<size_t>(slot.parameter->size)));
    file.tensors[slot.name] = {DType::kF32, slot.parameter->shape, {bytes.begin(), bytes.end()}};
  }
  file.metadata = checkpoint.metadata;
  file.metadata["net"] = net.spec().name;
  file.metadata["step"] = absl::StrCat(checkpoint.step);
  file.metadata["epoch"] = absl::StrCat(checkpoint.epoch);
  file.metadata[kChecksumKey] = Hex(WeightsChecksum(net, checkpoint.parameters));
  file.metadata[kContentKey] = ContentChecksum(file);
  LENET_RETURN_IF_ERROR(WriteTensorFile(path, file));

  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) return absl::DataLossError(absl::StrCat(path.string(), ": ", error.message()));
  return static_cast<int64_t>(bytes);
}

absl::StatusOr<Checkpoint> LoadCheckpoint(const std::filesystem::path& path, const Net& net,
                                          const OptimizerSpec& optimizer) {
  LENET_ASSIGN_OR_RETURN(TensorFile file, ReadTensorFile(path));
  return TakeApart(std::move(file), path.string(), net, optimizer);
}

absl::StatusOr<Checkpoint> ParseCheckpoint(std::span<const std::byte> bytes, const std::string& name, const Net& net,
                                           const OptimizerSpec& optimizer) {
  LENET_ASSIGN_OR_RETURN(TensorFile file, ParseTensorFile(bytes, name));
  return TakeApart(std::move(file), name, net, optimizer);
}

absl::StatusOr<int64_t> CheckpointStep(std::span<const std::byte> bytes, const std::string& name) {
  LENET_ASSIGN_OR_RETURN(const TensorFile file, ParseTensorFile(bytes, name));
  LENET_RETURN_IF_ERROR(CheckContent(file, name));
  return Counter(file, name, "step");
}

absl::StatusOr<std::vector<float>> LoadWeights(const std::filesystem::path& path, const Net& net) {
  LENET_ASSIGN_OR_RETURN(TensorFile file, ReadTensorFile(path));
  std::erase_if(file.tensors, [](const auto& tensor) { return absl::StartsWith(tensor.first, kStatePrefix); });
  Checkpoint checkpoint;
  LENET_RETURN_IF_ERROR(TakeTensors(path.string(), net, OptimizerSpec(), &file, &checkpoint));
  if (!file.tensors.empty()) return Surplus(file, path.string());
  return std::move(checkpoint.parameters);
}

}  // namespace lenet
