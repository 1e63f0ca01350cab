#include "trainer/train/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <utility>

#include "tests/support/temp_folder.h"
#include "trainer/base/file.h"
#include "trainer/train/safetensors.h"

namespace lenet {
namespace {

using ::testing::HasSubstr;

Net MakeNet(const std::string& preset) {
  absl::StatusOr<NetSpec> spec = PresetNet(preset, {1, 28, 28}, 10);
  absl::StatusOr<Net> net = Net::Create(*std::move(spec));
  return *std::move(net);
}

// Numbered values in every parameter, zeros in the gaps.
void Fill(const Net& net, float start, std::span<float> flat) {
  for (const Parameter& parameter : net.parameters()) {
    for (int64_t i = 0; i < parameter.size; ++i) flat[static_cast<size_t>(parameter.offset + i)] = start++ / 8;
  }
}

Checkpoint Example(const Net& net, const OptimizerSpec& optimizer) {
  Checkpoint checkpoint = {.step = 1234, .epoch = 2, .metadata = {{"seed", "7"}}};
  const size_t flat_size = static_cast<size_t>(net.flat_size());
  checkpoint.parameters.resize(flat_size);
  checkpoint.state.resize(static_cast<size_t>(StateSlots(optimizer)) * flat_size);
  Fill(net, 1, checkpoint.parameters);
  for (int s = 0; s < StateSlots(optimizer); ++s) {
    Fill(net, 1000.0f * static_cast<float>(s + 1), std::span(checkpoint.state).subspan(s * flat_size, flat_size));
  }
  return checkpoint;
}

const OptimizerSpec kMomentum = {.momentum = 0.9};
const OptimizerSpec kAdam = {.kind = OptimizerKind::kAdam};

TEST(CheckpointTest, SavesAndLoads) {
  const TempFolder folder;
  for (const std::string& preset : PresetNames()) {
    const Net net = MakeNet(preset);
    for (const OptimizerSpec& optimizer : {OptimizerSpec{}, kMomentum, kAdam}) {
      const std::filesystem::path path = folder.path() / "c.safetensors";
      const Checkpoint saved = Example(net, optimizer);
      const absl::StatusOr<int64_t> bytes = SaveCheckpoint(path, net, optimizer, saved);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      EXPECT_EQ(*bytes, static_cast<int64_t>(std::filesystem::file_size(path)));
      const absl::StatusOr<Checkpoint> loaded = LoadCheckpoint(path, net, optimizer);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      EXPECT_EQ(loaded->step, 1234);
      EXPECT_EQ(loaded->epoch, 2);
      EXPECT_EQ(loaded->parameters, saved.parameters);
      EXPECT_EQ(loaded->state, saved.state);
      EXPECT_EQ(loaded->metadata.at("seed"), "7");
      EXPECT_EQ(loaded->metadata.at("net"), preset);
    }
  }
}

TEST(CheckpointTest, UsesTheNamesAndShapesOfPyTorch) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "c.safetensors";
  const Net net = MakeNet("lenet");
  ASSERT_TRUE(SaveCheckpoint(path, net, kAdam, Example(net, kAdam)).ok());
  const absl::StatusOr<TensorFile> file = ReadTensorFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors.size(), 30u);
  EXPECT_EQ(file->tensors.at("conv1.weight").shape, (std::vector<int64_t>{6, 1, 5, 5}));
  EXPECT_EQ(file->tensors.at("fc1.weight").shape, (std::vector<int64_t>{120, 256}));
  EXPECT_EQ(file->tensors.at("fc3.bias").shape, (std::vector<int64_t>{10}));
  EXPECT_EQ(file->tensors.at("optimizer/exp_avg/conv2.bias").shape, (std::vector<int64_t>{16}));
  EXPECT_EQ(file->tensors.at("optimizer/exp_avg_sq/conv2.weight").shape, (std::vector<int64_t>{16, 6, 5, 5}));
  EXPECT_EQ(file->metadata.at("step"), "1234");
  EXPECT_EQ(file->metadata.at("weights_checksum").size(), 16u);
}

TEST(CheckpointTest, RefusesBuffersOfAnotherSize) {
  const TempFolder folder;
  const Net net = MakeNet("lenet");
  Checkpoint checkpoint = Example(net, kMomentum);
  checkpoint.state.pop_back();
  const std::filesystem::path path = folder.path() / "c.safetensors";
  EXPECT_EQ(SaveCheckpoint(path, net, kMomentum, checkpoint).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(CheckpointTest, NamesWhatDoesNotFit) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "c.safetensors";
  const Net net = MakeNet("lenet");
  ASSERT_TRUE(SaveCheckpoint(path, net, kMomentum, Example(net, kMomentum)).ok());

  absl::Status status = LoadCheckpoint(path, MakeNet("lenet-caffe"), kMomentum).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor conv1.weight: shape [6,1,5,5]: must be F32 of [20,1,5,5]"));

  status = LoadCheckpoint(path, net, kAdam).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has no tensor optimizer/exp_avg/conv1.weight"));

  status = LoadCheckpoint(path, net, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor optimizer/momentum/conv1.bias belongs to another"));

  EXPECT_EQ(LoadCheckpoint(folder.path() / "none", net, {}).status().code(), absl::StatusCode::kNotFound);
}

TEST(CheckpointTest, FindsDamage) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "c.safetensors";
  const Net net = MakeNet("lenet");
  const auto error = [&](const std::function<void(TensorFile*)>& damage) {
    EXPECT_TRUE(SaveCheckpoint(path, net, kMomentum, Example(net, kMomentum)).ok());
    absl::StatusOr<TensorFile> file = ReadTensorFile(path);
    file->metadata.erase("content_checksum");  // what earlier versions checked still holds
    damage(&*file);
    EXPECT_TRUE(WriteTensorFile(path, *file).ok());
    return LoadCheckpoint(path, net, kMomentum).status();
  };
  absl::Status status = error([](TensorFile* file) { file->tensors.at("fc2.weight").data[40] ^= std::byte{1}; });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("checksum"));

  status = error([](TensorFile* file) { file->metadata.erase("step"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("metadata step = \"\": must be a count"));
  status = error([](TensorFile* file) { file->metadata["epoch"] = "-1"; });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);

  status = error([](TensorFile* file) {
    file->tensors.at("fc1.bias").dtype = DType::kU8;
    file->tensors.at("fc1.bias").shape = {480};
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("fc1.bias: not F32, shape [480]: must be F32 of [120]"));
}

TEST(CheckpointTest, TheWholeContentHasAChecksum) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "c.safetensors";
  const Net net = MakeNet("lenet");
  const auto load = [&](const std::function<void(TensorFile*)>& change) {
    EXPECT_TRUE(SaveCheckpoint(path, net, kMomentum, Example(net, kMomentum)).ok());
    absl::StatusOr<TensorFile> file = ReadTensorFile(path);
    change(&*file);
    EXPECT_TRUE(WriteTensorFile(path, *file).ok());
    return LoadCheckpoint(path, net, kMomentum).status();
  };
  const std::function<void(TensorFile*)> damages[] = {
      [](TensorFile* file) { file->tensors.at("optimizer/momentum/fc2.weight").data[41] ^= std::byte{1}; },
      [](TensorFile* file) { file->tensors.at("optimizer/momentum/fc3.bias").data[39] ^= std::byte{0x80}; },
      [](TensorFile* file) { file->tensors.at("conv1.weight").data[0] ^= std::byte{2}; },
      [](TensorFile* file) {
        std::swap(file->tensors.at("optimizer/momentum/fc1.bias"), file->tensors.at("fc1.bias"));
      },
      [](TensorFile* file) { file->metadata["step"] = "1233"; },
      [](TensorFile* file) { file->metadata["epoch"] = "4611686018427387904"; },
      [](TensorFile* file) { file->metadata["seed"] = "8"; },
      [](TensorFile* file) { file->metadata["content_checksum"][0] ^= 1; },
  };
  for (const auto& damage : damages) {
    const absl::Status status = load(damage);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("c.safetensors: the content's checksum is "));
    const std::string bytes = *ReadFile(path, 1 << 30);
    EXPECT_TRUE(absl::IsDataLoss(CheckpointStep(std::as_bytes(std::span(bytes)), "bytes").status()));
  }
  // A file of before there was one.
  EXPECT_TRUE(load([](TensorFile* file) { file->metadata.erase("content_checksum"); }).ok());
  const std::string bytes = *ReadFile(path, 1 << 30);
  EXPECT_EQ(*CheckpointStep(std::as_bytes(std::span(bytes)), "bytes"), 1234);
}

TEST(WeightsChecksumTest, IsFnv1aOfTheParametersAlone) {
  const Net net = MakeNet("lenet");
  std::vector<float> flat(static_cast<size_t>(net.flat_size()));
  // 44,426 floats of zero are 177,704 zero bytes: the hash is the offset basis times the prime to that power.
  uint64_t expected = 0xcbf29ce484222325;
  for (int64_t i = 0; i < 4 * net.parameter_count(); ++i) expected *= 0x100000001b3;
  EXPECT_EQ(WeightsChecksum(net, flat), expected);

  std::vector<bool> used(flat.size());
  for (const Parameter& p : net.parameters()) {
    for (int64_t i = 0; i < p.size; ++i) used[static_cast<size_t>(p.offset + i)] = true;
  }
  for (size_t i = 0; i < flat.size(); i += 61) {
    flat[i] = 1;
    EXPECT_EQ(WeightsChecksum(net, flat) == expected, !used[i]) << i;
    flat[i] = 0;
  }
}

}  // namespace
}  // namespace lenet
