// The fuzzer's seeds, without libFuzzer. A name says what a seed is: images-*, labels-* or bad-*.
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/unit/trainer/data/idx_bytes.h"
#include "trainer/base/file.h"
#include "trainer/data/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lenet {
namespace {

TEST(IdxSeedsTest, PassTheFuzzTargetAndAreWhatTheirNamesSay) {
  int seeds = 0;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(LENET_TEST_DATA "/idx")) {
    const std::string name = entry.path().filename().string();
    const absl::StatusOr<std::string> content = ReadFile(entry.path(), 1 << 20);
    ASSERT_TRUE(content.ok()) << content.status();
    const Bytes bytes = BytesOf(*content);
    EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
    EXPECT_EQ(ParseIdx(bytes, name, IdxKind::kImages).ok(), absl::StartsWith(name, "images-")) << name;
    EXPECT_EQ(ParseIdx(bytes, name, IdxKind::kLabels).ok(), absl::StartsWith(name, "labels-")) << name;
    ++seeds;
  }
  EXPECT_GE(seeds, 20);
}

}  // namespace
}  // namespace lenet
