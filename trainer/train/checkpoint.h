// A training's state in one safetensors file: parameters under PyTorch's names and shapes; optimiser state as
// "optimizer/<slot>/<parameter>"; metadata. Independent of the number of ranks.
#ifndef LENET_TRAINER_TRAIN_CHECKPOINT_H_
#define LENET_TRAINER_TRAIN_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/nn/net.h"
#include "trainer/optim/optimizer.h"

namespace lenet {

// What the names of the optimiser's tensors begin with.
inline constexpr char kStatePrefix[] = "optimizer/";
// Of a name or value from a file in a message.
inline constexpr size_t kMaxShownName = 80;

struct Checkpoint {
  int64_t step = 0;               // steps done; with the plan's steps_per_epoch it is also the sampler's position
  int64_t epoch = 0;              // epochs completed
  std::vector<float> parameters;  // [flat_size]
  std::vector<float> state;       // [StateSlots, flat_size]
  // Spec, seed, ranks, versions; saving adds "net", "step", "epoch", "weights_checksum" and "content_checksum" (both of
  // 16 hexadecimal digits).
  std::map<std::string, std::string> metadata;
};

// 64-bit FNV-1a over the little-endian bytes of each parameter in order, gaps left out.
uint64_t WeightsChecksum(const Net& net, std::span<const float> flat);

// Atomic, see WriteFileAtomic. Gives the file's size in bytes. INVALID_ARGUMENT if the buffers do not have the sizes
// given above.
absl::StatusOr<int64_t> SaveCheckpoint(const std::filesystem::path& path, const Net& net,
                                       const OptimizerSpec& optimizer, const Checkpoint& checkpoint);

// DATA_LOSS if the file is damaged, or its weights or its content do not have their checksums (files of earlier
// versions have none of the content); FAILED_PRECONDITION naming the tensor if it does not fit the net or the
// optimiser.
absl::StatusOr<Checkpoint> LoadCheckpoint(const std::filesystem::path& path, const Net& net,
                                          const OptimizerSpec& optimizer);
// The same from a file's bytes; `name` is what errors call it.
absl::StatusOr<Checkpoint> ParseCheckpoint(std::span<const std::byte> bytes, const std::string& name, const Net& net,
                                           const OptimizerSpec& optimizer);

// The step of a file of whatever net and optimiser. DATA_LOSS if it is damaged or its content does not have its
// checksum.
absl::StatusOr<int64_t> CheckpointStep(std::span<const std::byte> bytes, const std::string& name);

// The parameters alone, whatever the optimiser: [flat_size]. Asks for no metadata. Errors as LoadCheckpoint.
absl::StatusOr<std::vector<float>> LoadWeights(const std::filesystem::path& path, const Net& net);

}  // namespace lenet

#endif  // LENET_TRAINER_TRAIN_CHECKPOINT_H_
