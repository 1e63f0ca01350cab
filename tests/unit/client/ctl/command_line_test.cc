#include "client/ctl/command_line.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/ctl/exit_code.h"
#include "google/protobuf/text_format.h"
#include "tests/unit/client/ctl/fake_terminal.h"

namespace lenet::ctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Parsed {
  std::optional<int> code;
  CommandLine line;
  FakeFile output;
};

Parsed Parse(const std::string& text, const std::string& server = "") {
  Parsed parsed;
  std::vector<std::string> arguments = absl::StrSplit(text, ' ', absl::SkipEmpty());
  parsed.code = ParseCommandLine(arguments, server, &parsed.output, &parsed.line);
  return parsed;
}

// The spec of a command line that must be right.
v1::TrainingSpec Spec(const std::string& flags) {
  const Parsed parsed = Parse("submit " + flags);
  EXPECT_EQ(parsed.code, std::nullopt) << flags << ": " << parsed.output.err;
  return parsed.line.start.spec();
}

void ExpectSpec(const std::string& flags, const std::string& text) {
  v1::TrainingSpec expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &expected)) << text;
  std::string differences;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&differences);
  EXPECT_TRUE(differencer.Compare(expected, Spec(flags))) << flags << ": " << differences;
}

TEST(SpecFlagsTest, FieldsOfFlagsThatAreNotGivenAreNotSet) {
  ExpectSpec("", "");
  ExpectSpec("--epochs 10", "epochs: 10");
}

TEST(SpecFlagsTest, EveryFieldHasAFlag) {
  ExpectSpec("--dataset mnist --net lenet-caffe --init kaiming-uniform --seed 18446744073709551615",
             "dataset: 'mnist' net: 'lenet-caffe' init { kind: KAIMING_UNIFORM } seed: 18446744073709551615");
  ExpectSpec("--init xavier-uniform", "init { kind: XAVIER_UNIFORM }");
  ExpectSpec("--init uniform:-0.05,0.05", "init { kind: UNIFORM low: -0.05 high: 0.05 }");
  ExpectSpec("--optimizer sgd --momentum 0.5 --nesterov --weight-decay 1e-4 --clip-norm 2",
             "optimizer { kind: SGD momentum: 0.5 nesterov: true weight_decay: 1e-4 } clip_norm: 2");
  ExpectSpec("--no-nesterov", "optimizer { nesterov: false }");
  ExpectSpec("--optimizer adam --beta1 0.8 --beta2 0.9 --epsilon 1e-6",
             "optimizer { kind: ADAM beta1: 0.8 beta2: 0.9 epsilon: 1e-6 }");
  ExpectSpec("--optimizer adamw", "optimizer { kind: ADAMW }");
  ExpectSpec("--lr 0.1 --schedule constant --warmup 0.25",
             "learning_rate: 0.1 schedule { kind: CONSTANT warmup_fraction: 0.25 }");
  ExpectSpec("--schedule step --gamma 0.5 --step-epochs 3", "schedule { kind: STEP gamma: 0.5 step_epochs: 3 }");
  ExpectSpec("--schedule cosine --final-fraction 0.1", "schedule { kind: COSINE final_fraction: 0.1 }");
  ExpectSpec("--schedule linear", "schedule { kind: LINEAR }");
  ExpectSpec("--schedule one-cycle --peak-fraction 0.4 --initial-divisor 10 --final-divisor 100",
             "schedule { kind: ONE_CYCLE peak_fraction: 0.4 initial_divisor: 10 final_divisor: 100 }");
  ExpectSpec("--ranks 2 --devices 0,1 --precision tf32", "ranks: 2 device_ids: [0, 1] precision: PRECISION_TF32");
  ExpectSpec("--precision fp32 --nan-policy continue", "precision: PRECISION_FP32 nan_policy: NAN_POLICY_CONTINUE");
  ExpectSpec("--nan-policy stop", "nan_policy: NAN_POLICY_STOP");
  ExpectSpec("--batch-size 32 --max-steps 1099511627776 --evaluate-every 0",
             "batch_size: 32 max_steps: 1099511627776 evaluate_every_epochs: 0");
  ExpectSpec("--global-batch-size 128", "global_batch_size: 128");
}

// The server knows the bounds and says what is wrong, so the client must hand such values on as they are.
TEST(SpecFlagsTest, ValuesOutOfBoundsReachTheServer) {
  ExpectSpec("--epochs 0 --batch-size 0", "epochs: 0 batch_size: 0");
  ExpectSpec("--epochs -1 --ranks -3 --devices -1,-1", "epochs: -1 ranks: -3 device_ids: [-1, -1]");
  EXPECT_TRUE(std::isnan(Spec("--lr nan").learning_rate()));
  EXPECT_EQ(Spec("--lr -0.5").learning_rate(), -0.5);
  EXPECT_TRUE(std::isinf(Spec("--lr 1e999").learning_rate()));
  EXPECT_EQ(Spec("--dataset ../x").dataset(), "../x");
}

TEST(CommandLineTest, WhatIsWrongIsAUsageErrorThatNamesIt) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "a command is needed"},
      {"frobnicate", "frobnicate"},
      {"submit --frobnicate", "--frobnicate"},
      {"submit extra", "extra"},
      {"submit --epochs", "--epochs"},
      {"submit --epochs 1x", "1x"},
      {"submit --epochs 99999999999", "99999999999"},
      {"submit --seed -1", "--seed"},
      {"submit --optimizer lion", "adam|adamw|sgd"},
      {"submit --optimizer SGD", "\"SGD\""},
      {"submit --schedule never", "one-cycle"},
      {"submit --precision fp16", "fp32|tf32"},
      {"submit --nan-policy ignore", "continue|stop"},
      {"submit --init normal", "\"normal\""},
      {"submit --init uniform:1", "\"uniform:1\""},
      {"submit --init uniform:1,2,3", "uniform:LOW,HIGH"},
      {"submit --devices 0,", "\"\""},
      {"submit --devices 0,a", "\"a\""},
      {"submit --every 0", "--every"},
      {"submit --reconnect-timeout -1", "--reconnect-timeout"},
      {"watch", "ID"},
      {"watch a b", "b"},
      {"watch a --kinds loss", "step-losses"},
      {"watch a --kinds record-kind-unspecified", "step-losses"},
      {"watch a --from x", "--from"},
      {"list --state ended", "succeeded"},
      {"list --limit -1", "--limit"},
      {"info --timeout 0", "--timeout"},
      {"info --timeout nan", "--timeout"},
      {"info --timeout soon", "--timeout"},
      {"info --server localhost", "\"localhost\" is not HOST:PORT"},
      {"info --server localhost:0", "1 to 65535"},
      {"info --server localhost:65536", "1 to 65535"},
      {"info --server :50051", "HOST:PORT"},
      {"info --server ::1:50051", "[::1]:50051"},
      {"show \xff", "not UTF-8"},
  };
  for (const auto& [text, message] : cases) {
    const Parsed parsed = Parse(text);
    EXPECT_EQ(parsed.code, std::optional<int>(kUsage)) << text;
    EXPECT_THAT(parsed.output.err, HasSubstr(message)) << text;
    EXPECT_THAT(parsed.output.err, HasSubstr("--help")) << text;
    EXPECT_EQ(parsed.output.out, "") << text;
  }
}

TEST(CommandLineTest, HelpAndVersionSucceed) {
  for (const char* text : {"--help", "submit --help", "watch -h", "list --help", "show --help", "stop --help",
                           "info --help", "datasets --help"}) {
    const Parsed parsed = Parse(text);
    EXPECT_EQ(parsed.code, std::optional<int>(kSuccess)) << text;
    EXPECT_THAT(parsed.output.out, HasSubstr("Exit codes: 0 success")) << text;
    EXPECT_THAT(parsed.output.err, IsEmpty()) << text;
  }
  EXPECT_THAT(Parse("--version").output.out, HasSubstr("lenetctl "));
}

TEST(CommandLineTest, TheServerComesFromTheFlagThenTheEnvironment) {
  EXPECT_EQ(Parse("info").line.client.address, "127.0.0.1:50051");
  Parsed parsed = Parse("info", "far:1");
  EXPECT_EQ(parsed.line.client.address, "far:1");
  EXPECT_FALSE(parsed.line.server_given);
  parsed = Parse("info --server [::1]:2", "far:1");
  EXPECT_EQ(parsed.line.client.address, "[::1]:2");
  EXPECT_TRUE(parsed.line.server_given);
  EXPECT_EQ(Parse("--server unix:/run/lenetd info").line.client.address, "unix:/run/lenetd");
  EXPECT_EQ(Parse("info", "nonsense").code, std::optional<int>(kUsage));
}

TEST(CommandLineTest, CommonFlagsStandBeforeOrBehindTheCommand) {
  for (const char* text : {"--json --timeout 2.5 list", "list --json --timeout 2.5"}) {
    const Parsed parsed = Parse(text);
    EXPECT_EQ(parsed.code, std::nullopt);
    EXPECT_EQ(parsed.line.command, Command::kList);
    EXPECT_TRUE(parsed.line.json);
    EXPECT_TRUE(parsed.line.timeout_given);
    EXPECT_EQ(parsed.line.client.timeout, absl::Seconds(2.5));
  }
  EXPECT_FALSE(Parse("list").line.timeout_given);
  EXPECT_EQ(Parse("list").line.client.timeout, absl::Seconds(10));
}

TEST(CommandLineTest, Submit) {
  const Parsed parsed = Parse("submit --name n --request-id r --detach --every 5 --reconnect-timeout 7");
  EXPECT_EQ(parsed.line.command, Command::kSubmit);
  EXPECT_EQ(parsed.line.start.name(), "n");
  EXPECT_EQ(parsed.line.start.request_id(), "r");
  EXPECT_TRUE(parsed.line.detach);
  EXPECT_EQ(parsed.line.stream.every_n_steps(), 5);
  EXPECT_EQ(parsed.line.client.reconnect_timeout, absl::Seconds(7));
}

TEST(CommandLineTest, Watch) {
  // The list takes one argument alone, so the id behind it is not a rank.
  const Parsed parsed = Parse("watch --from 12 --every 2 --kinds step-losses,evaluation --ranks 0,3 7");
  EXPECT_EQ(parsed.code, std::nullopt) << parsed.output.err;
  EXPECT_EQ(parsed.line.command, Command::kWatch);
  EXPECT_EQ(parsed.line.job_id, "7");
  EXPECT_EQ(parsed.line.stream.from_sequence(), 12u);
  EXPECT_EQ(parsed.line.stream.every_n_steps(), 2);
  EXPECT_THAT(parsed.line.stream.ranks(), ElementsAre(0, 3));
  EXPECT_THAT(parsed.line.stream.kinds(), ElementsAre(v1::STEP_LOSSES, v1::EVALUATION));
}

TEST(CommandLineTest, ListStopShow) {
  Parsed parsed = Parse("list --state running,failed");
  EXPECT_THAT(parsed.line.states, ElementsAre(v1::RUNNING, v1::FAILED));
  EXPECT_EQ(parsed.line.limit, 50);
  EXPECT_EQ(Parse("list --limit 0").line.limit, std::numeric_limits<int64_t>::max());
  parsed = Parse("stop a --abort --wait");
  EXPECT_EQ(parsed.line.command, Command::kStop);
  EXPECT_EQ(parsed.line.job_id, "a");
  EXPECT_TRUE(parsed.line.abort);
  EXPECT_TRUE(parsed.line.wait);
  EXPECT_EQ(Parse("show a").line.command, Command::kShow);
  EXPECT_EQ(Parse("datasets").line.command, Command::kDatasets);
}

}  // namespace
}  // namespace lenet::ctl
