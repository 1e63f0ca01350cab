// The fuzzer's seeds, without libFuzzer. A name says what a seed is: state-* is a checkpoint of the tiny net, other-* a
// sound file that is none, bad-* a damaged one.
#include <filesystem>
#include <span>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/unit/trainer/train/tiny_net.h"
#include "trainer/base/file.h"
#include "trainer/train/checkpoint.h"
#include "trainer/train/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lenet {
namespace {

TEST(CheckpointSeedsTest, PassTheFuzzTargetAndAreWhatTheirNamesSay) {
  const Net net = TinyNet();
  int seeds = 0;
  for (const std::filesystem::directory_entry& entry :
       std::filesystem::directory_iterator(LENET_TEST_DATA "/checkpoint")) {
    const std::string name = entry.path().filename().string();
    const absl::StatusOr<std::string> content = ReadFile(entry.path(), 20'000);
    ASSERT_TRUE(content.ok()) << content.status();
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(content->data()), content->size()), 0);
    const std::span<const std::byte> bytes = std::as_bytes(std::span<const char>(*content));
    bool fits = false;
    bool damaged = false;
    for (const OptimizerSpec& optimizer : TinyOptimizers()) {
      const absl::Status status = ParseCheckpoint(bytes, name, net, optimizer).status();
      fits |= status.ok();
      damaged |= absl::IsDataLoss(status);
    }
    EXPECT_EQ(fits, absl::StartsWith(name, "state-")) << name;
    EXPECT_EQ(damaged, absl::StartsWith(name, "bad-")) << name;
    EXPECT_EQ(!fits && !damaged, absl::StartsWith(name, "other-")) << name;
    ++seeds;
  }
  EXPECT_GE(seeds, 15);
}

}  // namespace
}  // namespace lenet
