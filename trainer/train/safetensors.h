// The safetensors file format: 8 bytes little-endian header length, a JSON header, raw tensors.
#ifndef LENET_TRAINER_TRAIN_SAFETENSORS_H_
#define LENET_TRAINER_TRAIN_SAFETENSORS_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lenet {

enum class DType { kF32, kF64, kU8, kI64, kU64 };

struct Tensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;  // row-major, little-endian
};

struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, Tensor> tensors;
};

// Checks every bound before it trusts it: header length, JSON form, known dtype, shape products, offsets that lie in
// the file, in order, without gap or overlap, and match shape and dtype. DATA_LOSS names the file, the tensor and the
// value.
absl::StatusOr<TensorFile> ReadTensorFile(const std::filesystem::path& path);
absl::StatusOr<TensorFile> ParseTensorFile(std::span<const std::byte> bytes, const std::string& name);

// Atomic, see WriteFileAtomic.
absl::Status WriteTensorFile(const std::filesystem::path& path, const TensorFile& file);

}  // namespace lenet

#endif  // LENET_TRAINER_TRAIN_SAFETENSORS_H_
