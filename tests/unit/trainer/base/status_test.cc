#include "trainer/base/status.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace lenet {
namespace {

absl::StatusOr<std::unique_ptr<int>> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError(absl::StrCat(value, " is odd"));
  return std::make_unique<int>(value / 2);
}

absl::StatusOr<int> Quarter(int value) {
  LENET_ASSIGN_OR_RETURN(const std::unique_ptr<int> half, Half(value));
  LENET_ASSIGN_OR_RETURN(std::unique_ptr<int> quarter, Half(*half));
  return *std::exchange(quarter, nullptr);
}

absl::Status Check(int value, int* calls) {
  LENET_RETURN_IF_ERROR(Half(value).status());
  ++*calls;
  return absl::OkStatus();
}

TEST(StatusMacrosTest, PassValuesOnAndErrorsUp) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(7).status(), absl::InvalidArgumentError("7 is odd"));
  EXPECT_EQ(Quarter(6).status(), absl::InvalidArgumentError("3 is odd"));
  int calls = 0;
  EXPECT_TRUE(Check(2, &calls).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(Check(1, &calls), absl::InvalidArgumentError("1 is odd"));
  EXPECT_EQ(calls, 1);
}

TEST(BadValueTest, NumbersAreReadBackAsTheyWere) {
  const auto message = [](auto value) { return std::string(BadValue("rate", value, "small").message()); };
  EXPECT_EQ(message(0.1 + 0.2), "rate = 0.30000000000000004: must be small");
  EXPECT_EQ(message(0.07), "rate = 0.07: must be small");
  EXPECT_EQ(message(1.0000001f), "rate = 1.0000001: must be small");
  EXPECT_EQ(message(1000000.1), "rate = 1000000.1: must be small");
  EXPECT_EQ(message(-std::nan("")), "rate = nan: must be small");
  EXPECT_EQ(message(HUGE_VAL), "rate = inf: must be small");
  EXPECT_EQ(message(7), "rate = 7: must be small");
}

TEST(AnnotateTest, KeepsTheCodeAndPutsTheContextFirst) {
  EXPECT_EQ(Annotate(absl::NotFoundError("no file"), "data set 'x'"), absl::NotFoundError("data set 'x': no file"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "data set 'x'").ok());
}

}  // namespace
}  // namespace lenet
