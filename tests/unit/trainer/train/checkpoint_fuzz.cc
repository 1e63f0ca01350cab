// libFuzzer's entry to the checkpoint reader: whatever the bytes are, it gives a state that fits the net, or an error
// that names the file.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <span>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/unit/trainer/train/tiny_net.h"
#include "trainer/train/checkpoint.h"
#include "trainer/train/early_end.h"
#include "trainer/train/safetensors.h"

namespace {

using lenet::Checkpoint;
using lenet::Net;
using lenet::OptimizerSpec;
using lenet::Tensor;
using lenet::TensorFile;

constexpr char kName[] = "fuzzed-file";

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "the checkpoint reader broke its promise: %s\n", what);
  std::abort();
}

int64_t BytesEach(lenet::DType dtype) {
  switch (dtype) {
    case lenet::DType::kF32:
      return 4;
    case lenet::DType::kU8:
      return 1;
    case lenet::DType::kF64:
    case lenet::DType::kI64:
    case lenet::DType::kU64:
      return 8;
  }
  return 0;
}

void CheckTensors(const TensorFile& file, size_t input_size) {
  size_t total = 8;
  for (const auto& [name, tensor] : file.tensors) {
    int64_t bytes = BytesEach(tensor.dtype);
    for (const int64_t dimension : tensor.shape) {
      Require(dimension >= 0, "dimensions of at least 0");
      bytes *= dimension;
    }
    Require(static_cast<int64_t>(tensor.data.size()) == bytes, "as many bytes as shape and type need");
    total += tensor.data.size();
  }
  Require(total <= input_size, "no more bytes than the file has");
}

void CheckState(const Checkpoint& checkpoint, const Net& net, const OptimizerSpec& optimizer) {
  const size_t flat_size = static_cast<size_t>(net.flat_size());
  Require(checkpoint.step >= 0 && checkpoint.epoch >= 0, "counts of at least 0");
  Require(checkpoint.parameters.size() == flat_size, "as many parameters as the net has");
  Require(checkpoint.state.size() == static_cast<size_t>(lenet::StateSlots(optimizer)) * flat_size,
          "as many values of state as the optimizer needs");
  const std::string checksum =
      absl::StrCat(absl::Hex(lenet::WeightsChecksum(net, checkpoint.parameters), absl::kZeroPad16));
  Require(checkpoint.metadata.at("weights_checksum") == checksum, "weights of their checksum");
  const absl::Status history = lenet::EarlyEnd({}, 10).Restore(checkpoint.step, checkpoint.metadata);
  Require(history.ok() || absl::IsFailedPrecondition(history), "the code of an error in the history");
}

void CheckError(const absl::Status& status, bool may_not_fit) {
  Require(absl::IsDataLoss(status) || (may_not_fit && absl::IsFailedPrecondition(status)), "the code of an error");
  Require(absl::StartsWith(status.message(), "fuzzed-file: "), "an error that names the file");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Net* const net = new Net(lenet::TinyNet());
  const std::span<const std::byte> input = std::as_bytes(std::span(data, size));
  const absl::StatusOr<TensorFile> file = lenet::ParseTensorFile(input, kName);
  if (file.ok()) {
    CheckTensors(*file, size);
  } else {
    CheckError(file.status(), /*may_not_fit=*/false);
  }
  int accepted = 0;
  for (const OptimizerSpec& optimizer : lenet::TinyOptimizers()) {
    const absl::StatusOr<Checkpoint> checkpoint = lenet::ParseCheckpoint(input, kName, *net, optimizer);
    if (checkpoint.ok()) {
      CheckState(*checkpoint, *net, optimizer);
      ++accepted;
    } else {
      CheckError(checkpoint.status(), file.ok());
    }
  }
  Require(accepted <= (file.ok() ? 1 : 0), "a state of one optimizer alone");
  return 0;
}
