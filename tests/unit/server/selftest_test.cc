#include "server/selftest.h"

#include <cstddef>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_backend.h"
#include "tests/support/server_under_test.h"
#include "tests/support/temp_folder.h"
#include "trainer/base/file.h"

namespace lenet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SelftestTest : public ::testing::Test {
 protected:
  std::map<std::string, Check> Run(absl::StatusOr<SelectedBackend> selected) {
    std::map<std::string, Check> checks;
    ended_ = RunSelftest(options_, std::move(selected), [&](const Check& check) {
      EXPECT_TRUE(checks.emplace(check.name, check).second) << check.name << " twice";
      EXPECT_FALSE(check.detail.empty()) << check.name;
    });
    return checks;
  }

  std::map<std::string, Check> RunOnCpu() { return Run(SelectBackend(LENET_PLUGIN_DIR, "cpu")); }

  // Two devices that fail as the script says.
  std::map<std::string, Check> RunOnFake(const FakeFault& fault) {
    SelectedBackend selected;
    selected.backend = std::make_unique<ScriptedBackend>(
        2, [fault](int) -> absl::StatusOr<FakeScript> { return FakeScript{{fault}}; });
    return Run(std::move(selected));
  }

  bool ended_ = false;
  TempFolder folder_;
  SelftestOptions options_ = {.reference = ReferenceFile(),
                              .state_dir = folder_.path() / "not/made/yet",
                              .training = std::chrono::milliseconds(300),
                              .timeout = std::chrono::milliseconds(20'000)};
};

TEST_F(SelftestTest, AProcessorPassesEveryCheck) {
  const auto checks = RunOnCpu();
  EXPECT_TRUE(ended_);
  for (const char* name : {"backend", "libraries", "device 0", "reference on 0", "training"}) {
    ASSERT_EQ(checks.count(name), 1u) << name;
    EXPECT_EQ(checks.at(name).result, CheckResult::kOk) << name << ": " << checks.at(name).detail;
  }
  for (const auto& [name, check] : checks)
    EXPECT_NE(check.result, CheckResult::kFailed) << name << ": " << check.detail;
  EXPECT_THAT(checks.at("training").detail, AllOf(HasSubstr("after 400 steps"), HasSubstr("ranks in 0.")));
}

TEST_F(SelftestTest, WithoutABackendTheRestOfTheMachineIsChecked) {
  const auto checks = Run(absl::UnavailableError("no such thing"));
  EXPECT_EQ(checks.at("backend").result, CheckResult::kFailed);
  EXPECT_THAT(checks.at("backend").detail, HasSubstr("no such thing"));
  for (const char* name : {"libraries", "devices", "reference", "training"}) {
    EXPECT_EQ(checks.at(name).result, CheckResult::kSkipped) << name;
  }
  EXPECT_NE(checks.at("disk").result, CheckResult::kSkipped);
}

TEST_F(SelftestTest, MemoryErrorsThatWereNotCorrectedFail) {
  options_.nvml = LENET_FAKE_NVML;
  const Check check = RunOnCpu().at("ECC");
  EXPECT_EQ(check.result, CheckResult::kFailed);
  EXPECT_THAT(check.detail, AllOf(HasSubstr("GPU 0: 1 errors uncorrected, 7 corrected (must be 0; reset it"),
                                  HasSubstr("; GPU 1: 1 errors uncorrected")));
}

TEST_F(SelftestTest, WithoutADriverNoMemoryErrorsAreLookedFor) {
  options_.nvml = "libnosuch.so.1";
  EXPECT_EQ(RunOnCpu().at("ECC").result, CheckResult::kSkipped);
}

TEST_F(SelftestTest, AReferenceThatCannotBeReadIsNamed) {
  options_.reference = "/nosuch/file";
  const auto checks = RunOnCpu();
  EXPECT_EQ(checks.at("reference").result, CheckResult::kFailed);
  EXPECT_THAT(checks.at("reference").detail, HasSubstr("/nosuch/file"));
  EXPECT_EQ(checks.at("training").result, CheckResult::kSkipped);
}

// One weight in the middle of the file is another: no device computes what stands there.
TEST_F(SelftestTest, ResultsThatAreNotTheReferencesFail) {
  absl::StatusOr<std::string> content = ReadFile(options_.reference, int64_t{1} << 30);
  ASSERT_TRUE(content.ok()) << content.status();
  const size_t header = 8 + static_cast<size_t>(static_cast<unsigned char>((*content)[0])) +
                        (static_cast<size_t>(static_cast<unsigned char>((*content)[1])) << 8);
  const std::string name = "\"nesterov/final/fc2.weight\"";
  const size_t entry = content->find(name);
  ASSERT_NE(entry, std::string::npos);
  const size_t offsets = content->find("data_offsets", entry);
  const size_t at = header + std::stoul(content->substr(content->find('[', offsets) + 1));
  for (size_t i = at + 3; i < at + 4000; i += 4) (*content)[i] = static_cast<char>((*content)[i] ^ 0x80);  // the signs
  const std::span<const std::byte> bytes = std::as_bytes(std::span(*content));
  options_.reference = folder_.path() / "reference";
  ASSERT_TRUE(WriteFileAtomic(options_.reference, std::span(&bytes, 1)).ok());
  const auto checks = RunOnCpu();
  EXPECT_EQ(checks.at("reference on 0").result, CheckResult::kFailed);
  EXPECT_THAT(checks.at("reference on 0").detail, AllOf(HasSubstr("weights after 6 steps"), HasSubstr("the bound is")));
}

TEST_F(SelftestTest, ARankThatHangsInTheAllReduceFailsItInTime) {
  options_.timeout = std::chrono::milliseconds(200);
  const auto checks = RunOnFake({.call = FakeCall::kAllReduce, .kind = FakeFault::Kind::kHang, .rank = 1});
  EXPECT_EQ(checks.at("all-reduce").result, CheckResult::kFailed);
  EXPECT_THAT(checks.at("all-reduce").detail, AllOf(HasSubstr("2 of 2 ranks did not end"), HasSubstr("0.2 s")));
}

// No abort reaches a call that never comes back, as of a driver.
TEST_F(SelftestTest, ADriverThatHangsEndsTheChecksOnDevices) {
  options_.timeout = options_.grace = std::chrono::milliseconds(50);
  SelectedBackend selected;
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  selected.backend = std::make_unique<ScriptedBackend>(2, [released](int) -> absl::StatusOr<FakeScript> {
    released.wait();
    return FakeScript();
  });
  const auto checks = Run(std::move(selected));
  EXPECT_FALSE(ended_);
  EXPECT_EQ(checks.at("reference on 0").result, CheckResult::kFailed);
  EXPECT_THAT(checks.at("reference on 0").detail, HasSubstr("hangs"));
  for (const char* name : {"reference on 1", "all-reduce", "training"}) {
    EXPECT_EQ(checks.at(name).result, CheckResult::kSkipped) << name;
  }
  release.set_value();
}

TEST_F(SelftestTest, ARanksErrorIsTold) {
  const auto checks =
      RunOnFake({.call = FakeCall::kAllReduce, .rank = 1, .status = absl::UnavailableError("the link is down")});
  EXPECT_EQ(checks.at("all-reduce").result, CheckResult::kFailed);
  EXPECT_THAT(checks.at("all-reduce").detail, HasSubstr("the link is down"));
}

TEST_F(SelftestTest, VersionsAreComparedByNumber) {
  EXPECT_EQ(CompareVersions("9.14.0", "9.14.0"), CheckResult::kOk);
  EXPECT_EQ(CompareVersions("9.19.1", "9.4.0"), CheckResult::kOk);
  EXPECT_EQ(CompareVersions("9.4.0", "9.19.1"), CheckResult::kWarning);
  EXPECT_EQ(CompareVersions("10.0.0", "9.19.1"), CheckResult::kFailed);
  EXPECT_EQ(CompareVersions("8.9", "9.0.0"), CheckResult::kFailed);
  EXPECT_EQ(CompareVersions("unknown", "9.0.0"), CheckResult::kFailed);
}

}  // namespace
}  // namespace lenet
