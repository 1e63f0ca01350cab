#include "client/ctl/start_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace lenet::ctl {
namespace {

using ::testing::HasSubstr;

TEST(ParseResumeFromTest, NamesAJobAndMaybeAStep) {
  v1::ResumeFrom from;
  EXPECT_EQ(ParseResumeFrom("abc", &from), "");
  EXPECT_EQ(from.job_id(), "abc");
  EXPECT_FALSE(from.has_step());
  EXPECT_EQ(ParseResumeFrom("abc@0", &from), "");
  EXPECT_EQ(from.job_id(), "abc");
  EXPECT_TRUE(from.has_step());
  EXPECT_EQ(ParseResumeFrom("abc@9223372036854775807", &from), "");
  EXPECT_EQ(from.step(), INT64_MAX);
}

TEST(ParseResumeFromTest, SaysWhatIsWrong) {
  v1::ResumeFrom from;
  EXPECT_EQ(ParseResumeFrom("@5", &from), "\"@5\" is not JOB or JOB@STEP: it names no job");
  for (const char* text : {"abc@", "abc@x", "abc@-1", "abc@1.5", "abc@0x1", "abc@9223372036854775808", "abc@1@y"}) {
    EXPECT_THAT(ParseResumeFrom(text, &from), HasSubstr("is not a whole number from 0 to 9223372036854775807")) << text;
  }
}

class ReadWeightsTest : public testing::Test {
 protected:
  ~ReadWeightsTest() override { std::remove(path_.c_str()); }

  std::string Read(int64_t size) {
    std::ofstream(path_, std::ios::binary) << std::string(static_cast<size_t>(size), '\0');
    return ReadWeights(path_, &bytes_);
  }

  const std::string path_ = absl::StrCat(testing::TempDir(), "/read-weights-", getpid());
  std::string bytes_;
};

TEST_F(ReadWeightsTest, ReadsUpToTheLimit) {
  EXPECT_EQ(Read(1), "");
  EXPECT_EQ(bytes_, std::string(1, '\0'));
  EXPECT_EQ(Read(kMaxWeightsBytes), "");
  EXPECT_EQ(static_cast<int64_t>(bytes_.size()), kMaxWeightsBytes);
  EXPECT_EQ(Read(kMaxWeightsBytes + 1), absl::StrCat("\"", path_, "\" is larger than ", kMaxWeightsBytes, " bytes"));
}

TEST_F(ReadWeightsTest, AFileThatCannotBeOneIsNamed) {
  EXPECT_EQ(Read(0), absl::StrCat("\"", path_, "\" is empty"));
  EXPECT_EQ(ReadWeights(path_ + "x", &bytes_), absl::StrCat("cannot read \"", path_, "x\": No such file or directory"));
  EXPECT_EQ(ReadWeights("/", &bytes_), "cannot read \"/\": Is a directory");
}

}  // namespace
}  // namespace lenet::ctl
