#include "client/ctl/command_line.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/value_flags.h"
#include "google/protobuf/text_format.h"
#include "tests/unit/client/ctl/environment.h"
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
  ClearEnvironment();
  Parsed parsed;
  std::vector<std::string> arguments = absl::StrSplit(text, ' ', absl::SkipEmpty());
  parsed.code = ParseCommandLine(arguments, server, &parsed.output, &parsed.line);
  return parsed;
}

// The spec of a command line that must be right.
v1::TrainingSpec Spec(const std::string& flags) {
  const Parsed parsed = Parse("submit " + flags);
  EXPECT_EQ(parsed.code, std::nullopt) << flags << ": " << parsed.output.err;
  v1::TrainingSpec spec;
  parsed.line.spec.ApplyTo(&spec);
  return spec;
}

v1::TrainingSpec FromText(const std::string& text) {
  v1::TrainingSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

void ExpectSpec(const std::string& flags, const std::string& text) {
  const v1::TrainingSpec expected = FromText(text);
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
  ExpectSpec("--engine fused --seed 3", "engine: ENGINE_FUSED seed: 3");
  ExpectSpec("--engine layered", "engine: ENGINE_LAYERED");
  ExpectSpec("--precision fp32 --nan-policy continue", "precision: PRECISION_FP32 nan_policy: NAN_POLICY_CONTINUE");
  ExpectSpec("--nan-policy stop", "nan_policy: NAN_POLICY_STOP");
  ExpectSpec("--batch-size 32 --max-steps 1099511627776 --evaluate-every 0",
             "batch_size: 32 max_steps: 1099511627776 evaluate_every_epochs: 0");
  ExpectSpec("--global-batch-size 128", "global_batch_size: 128");
  ExpectSpec("--max-duration 0.5 --target-accuracy 0.99 --patience 3",
             "max_duration: 0.5 target_accuracy: 0.99 patience: 3");
  ExpectSpec("--checkpoint-epochs 1 --checkpoint-steps 1099511627776 --checkpoint-seconds 2.5",
             "checkpoints { every_epochs: 1 every_steps: 1099511627776 every_seconds: 2.5 }");
  ExpectSpec("--keep-checkpoints 5 --no-keep-best", "checkpoints { keep_last: 5 keep_best: false }");
  ExpectSpec("--keep-best", "checkpoints { keep_best: true }");
  ExpectSpec("--checkpoint-seconds 0", "checkpoints {}");
  ExpectSpec("--priority -7 --preemptible", "priority: -7 preemptible: true");
}

// As for a job that goes on from another one.
TEST(SpecFlagsTest, FlagsTakeThePlaceOfWhatASpecSays) {
  const std::vector<std::array<std::string, 3>> cases = {
      {"dataset: 'mnist' epochs: 5 seed: 2", "", "dataset: 'mnist' epochs: 5 seed: 2"},
      {"dataset: 'mnist' epochs: 5", "--epochs 10", "dataset: 'mnist' epochs: 10"},
      {"epochs: 5", "--max-steps 100", "max_steps: 100"},
      {"max_steps: 100", "--epochs 5", "epochs: 5"},
      // The server says what is wrong with it.
      {"max_steps: 100", "--epochs 5 --max-steps 7", "epochs: 5 max_steps: 7"},
      {"batch_size: 64", "--global-batch-size 128", "global_batch_size: 128"},
      {"global_batch_size: 128", "--batch-size 64", "batch_size: 64"},
      {"ranks: 2 device_ids: [0, 1]", "--ranks 1", "ranks: 1"},
      {"ranks: 2", "--devices 0,1,2", "device_ids: [0, 1, 2]"},
      {"device_ids: [0, 1]", "--devices 3", "device_ids: [3]"},
      {"priority: 5 preemptible: true patience: 3 max_duration: 9",
       "--priority 0 --no-preemptible --patience 0 --max-duration 0", ""},
      {"optimizer { kind: SGD momentum: 0.9 }", "--weight-decay 0", "optimizer { kind: SGD momentum: 0.9 }"},
      {"checkpoints { every_steps: 10 keep_best: false }", "--checkpoint-steps 0 --checkpoint-epochs 1 --keep-best",
       "checkpoints { every_epochs: 1 keep_best: true }"},
  };
  for (const auto& [before, flags, after] : cases) {
    v1::TrainingSpec spec = FromText(before);
    const Parsed parsed = Parse("submit " + flags);
    ASSERT_EQ(parsed.code, std::nullopt) << flags << ": " << parsed.output.err;
    parsed.line.spec.ApplyTo(&spec);
    EXPECT_EQ(spec.DebugString(), FromText(after).DebugString()) << before << " " << flags;
  }
}

TEST(SpecFlagsTest, NumbersAreDecimal) {
  ExpectSpec("--batch-size 064 --max-steps 010 --epochs 09 --seed 0100",
             "batch_size: 64 max_steps: 10 epochs: 9 seed: 100");
  ExpectSpec("--ranks 02 --devices 00,01 --lr 010.5 --clip-norm 02",
             "ranks: 2 device_ids: [0, 1] learning_rate: 10.5 clip_norm: 2");
  ExpectSpec("--epochs -2147483648 --max-steps -9223372036854775808",
             "epochs: -2147483648 max_steps: -9223372036854775808");
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
      {"frobnicate --epochs 1",
       "there is no command \"frobnicate\"; there are submit, watch, stop, pause, resume, rm, list, "},
      {"submit --frobnicate", "--frobnicate"},
      {"submit extra more", "unexpected: extra more\nSee lenetctl submit --help."},
      {"submit --epochs", "--epochs"},
      {"submit --epochs 1x", "1x"},
      {"submit --epochs 99999999999", "--epochs: \"99999999999\" is not a whole number from -2147483648 to 2147483647"},
      {"submit --max-steps 9223372036854775808", "from -9223372036854775808 to 9223372036854775807"},
      {"submit --seed 18446744073709551616", "from 0 to 18446744073709551615"},
      {"submit --epochs 0x10", "--epochs: \"0x10\" is not a whole number"},
      {"submit --seed 0x10", "--seed: \"0x10\" is not a whole number"},
      {"submit --epochs 1e3", "--epochs: \"1e3\" is not a whole number"},
      {"submit --batch-size 0b1", "--batch-size: \"0b1\""},
      {"submit --lr 0x10", "--lr: \"0x10\" is not a number"},
      {"submit --lr 0.1x", "--lr: \"0.1x\" is not a number"},
      {"submit --clip-norm one", "--clip-norm: \"one\" is not a number"},
      {"submit --init uniform:0x1,2", "uniform:LOW,HIGH"},
      {"submit --devices 0x1", "--devices: \"0x1\""},
      {"submit --dataset= --epochs 3", "--dataset: the value is empty"},
      {"submit --nesterov=foo", "--nesterov takes no value"},
      {"submit --nesterov=99999999999999999999", "--nesterov takes no value"},
      {"submit --no-nesterov=x", "--no-nesterov takes no value"},
      {"submit --nesterov --no-nesterov", "--nesterov"},
      {"submit --detach=x", "--detach takes no value"},
      {"submit --help=x", "--help takes no value"},
      {"list --json=x", "--json takes no value"},
      {"--version=x", "--version takes no value"},
      {"submit --seed -1", "--seed"},
      {"submit --optimizer lion", "adam|adamw|sgd"},
      {"submit --optimizer SGD", "\"SGD\""},
      {"submit --schedule never", "one-cycle"},
      {"submit --precision fp16", "fp32|tf32"},
      {"submit --engine fast", "auto|fused|layered"},
      {"submit --nan-policy ignore", "continue|stop"},
      {"submit --init normal", "\"normal\""},
      {"submit --init uniform:1", "\"uniform:1\""},
      {"submit --init uniform:1,2,3", "uniform:LOW,HIGH"},
      {"submit --devices 0,", "\"\""},
      {"submit --devices 0,a", "\"a\""},
      {"submit --every 0", "--every: \"0\" is not a whole number from 1 to 2147483647"},
      {"submit --reconnect -1", "--reconnect: \"-1\" is not a time of at least 0 seconds"},
      {"submit --reconnect inf", "--reconnect"},
      {"submit --checkpoint-epochs x", "--checkpoint-epochs: \"x\""},
      {"submit --keep-checkpoints 2147483648", "--keep-checkpoints"},
      {"submit --no-keep-best=x", "--no-keep-best takes no value"},
      {"submit --keep-best --no-keep-best", "--keep-best"},
      {"submit --preemptible --no-preemptible", "--preemptible"},
      {"submit --resume-from @5", "--resume-from: \"@5\" is not JOB or JOB@STEP"},
      {"submit --resume-from a@b", "--resume-from: \"b\" is not a whole number"},
      {"submit --weights /", "--weights: cannot read \"/\": Is a directory"},
      {"submit --weights / --resume-from a", "--weights"},
      {"pause", "ID is required"},
      {"rm", "ID is required"},
      {"checkpoints", "ID is required"},
      {"checkpoints a b", "b"},
      {"resume a --now", "--now"},
      {"watch", "ID"},
      {"watch a b", "b"},
      {"watch a --kinds loss", "step-losses"},
      {"watch a --kinds record-kind-unspecified", "step-losses"},
      {"watch a --from x", "--from"},
      {"list --state ended", "succeeded"},
      {"list --limit -1", "--limit: \"-1\" is not a whole number from 0 to 9223372036854775807"},
      {"info --timeout 0", "--timeout: \"0\" is not a time of at least 0.001 seconds"},
      {"info --timeout 1e-9", "--timeout: \"1e-9\" is not a time of at least 0.001 seconds"},
      {"info --timeout nan", "--timeout"},
      {"info --timeout inf", "--timeout"},
      {"info --timeout 0x1", "--timeout"},
      {"info --timeout soon", "--timeout"},
      {"info --server localhost", "\"localhost\" is not HOST:PORT"},
      {"info --server localhost:0", "1 to 65535"},
      {"info --server localhost:0x50", "1 to 65535"},
      {"info --server localhost:65536", "1 to 65535"},
      {"info --server :50051", "HOST:PORT"},
      {"info --server ::1:50051", "[::1]:50051"},
      {"info --server http://host:50051", "without http://"},
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

TEST(ValueFlagsTest, SpaceAroundANumberIsNoPartOfIt) {
  int32_t whole = 7;
  double real = 7;
  for (const char* text : {"", " ", " 5", "5 ", "5\n"}) {
    EXPECT_NE(ParseNumber(text, &whole), "") << text;
    EXPECT_NE(ParseNumber(text, &real), "") << text;
  }
}

TEST(CommandLineTest, AnEmptyValueIsAUsageErrorThatNamesItsFlag) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> flags = {
      {"submit",
       {"--dataset",
        "--net",
        "--init",
        "--seed",
        "--epochs",
        "--max-steps",
        "--batch-size",
        "--global-batch-size",
        "--evaluate-every",
        "--ranks",
        "--devices",
        "--precision",
        "--engine",
        "--optimizer",
        "--momentum",
        "--weight-decay",
        "--beta1",
        "--beta2",
        "--epsilon",
        "--clip-norm",
        "--nan-policy",
        "--lr",
        "--schedule",
        "--warmup",
        "--final-fraction",
        "--gamma",
        "--step-epochs",
        "--peak-fraction",
        "--initial-divisor",
        "--final-divisor",
        "--name",
        "--request-id",
        "--every",
        "--max-duration",
        "--target-accuracy",
        "--patience",
        "--checkpoint-epochs",
        "--checkpoint-steps",
        "--checkpoint-seconds",
        "--keep-checkpoints",
        "--priority",
        "--resume-from",
        "--weights",
        "--reconnect",
        "--server",
        "--context",
        "--timeout"}},
      {"watch", {"ID", "--from", "--ranks", "--kinds"}},
      {"list", {"--state", "--limit"}},
      {"show", {"ID"}},
      {"pause", {"ID"}},
      {"resume", {"ID"}},
      {"rm", {"ID"}},
      {"checkpoints", {"ID"}},
      {"stop", {"ID"}}};
  for (const auto& [command, names] : flags) {
    for (const std::string& name : names) {
      std::vector<std::string> arguments = {command};
      if (name != "ID") arguments.push_back(name);
      arguments.push_back("");
      FakeFile output;
      CommandLine line;
      EXPECT_EQ(ParseCommandLine(arguments, "", &output, &line), std::optional<int>(kUsage)) << command << " " << name;
      EXPECT_THAT(output.err, HasSubstr(name + ": the value is empty")) << command;
    }
  }
}

TEST(CommandLineTest, HelpPutsFlagsIntoTheGroupsWhoseDefaultsTheyChange) {
  const std::string help = Parse("submit --help").output.out;
  const size_t optimizer = help.find("\nOptimizer (");
  const size_t rate = help.find("\nLearning rate (");
  const size_t gradient = help.find("\nGradient:");
  ASSERT_LT(optimizer, rate);
  ASSERT_LT(rate, gradient);
  ASSERT_NE(gradient, std::string::npos);
  for (const char* flag : {"--optimizer ", "--momentum ", "--nesterov", "--weight-decay ", "--epsilon "}) {
    EXPECT_GT(help.find(flag, optimizer), optimizer) << flag;
    EXPECT_LT(help.find(flag, optimizer), rate) << flag;
  }
  for (const char* flag : {"--clip-norm ", "--nan-policy "}) EXPECT_GT(help.find(flag), gradient) << flag;
  // None of them makes the optimizer or the schedule present, and so changes defaults.
  const v1::TrainingSpec spec = Spec("--clip-norm 2 --nan-policy continue --lr 0.1");
  EXPECT_FALSE(spec.has_optimizer());
  EXPECT_FALSE(spec.has_schedule());
}

TEST(CommandLineTest, HelpAndVersionSucceed) {
  for (const char* text : {"--help", "submit --help", "watch -h", "list --help", "show --help", "stop --help",
                           "pause --help", "resume --help", "rm --help", "checkpoints --help", "info --help",
                           "datasets --help", "context --help", "context set --help"}) {
    const Parsed parsed = Parse(text);
    EXPECT_EQ(parsed.code, std::optional<int>(kSuccess)) << text;
    EXPECT_THAT(parsed.output.out, HasSubstr("Exit codes: 0 success")) << text;
    const bool command = std::string(text) != "--help";
    EXPECT_EQ(parsed.output.out.find("Also: the options of lenetctl --help.") != std::string::npos, command) << text;
    EXPECT_THAT(parsed.output.err, IsEmpty()) << text;
  }
  EXPECT_THAT(Parse("--version").output.out, HasSubstr("lenetctl "));
}

TEST(CommandLineTest, TheServerComesFromTheFlagThenTheEnvironment) {
  EXPECT_EQ(Parse("info").line.client.address, "unix:/run/lenet/lenetd.sock");
  Parsed parsed = Parse("info", "far:1");
  EXPECT_EQ(parsed.line.client.address, "far:1");
  EXPECT_EQ(parsed.line.lenetctl, "lenetctl");
  parsed = Parse("info --server [::1]:2", "far:1");
  EXPECT_EQ(parsed.line.client.address, "[::1]:2");
  EXPECT_EQ(parsed.line.lenetctl, "lenetctl --server [::1]:2");
  EXPECT_EQ(Parse("--server unix:/run/lenetd info").line.client.address, "unix:/run/lenetd");
  EXPECT_EQ(Parse("info", "nonsense").code, std::optional<int>(kUsage));
}

TEST(CommandLineTest, FlagsOfTheServerAreRepeatedInAdvice) {
  EXPECT_EQ(Parse("info --tls").line.lenetctl, "lenetctl --tls");
  EXPECT_TRUE(Parse("info --tls").line.client.tls.enabled);
  EXPECT_FALSE(Parse("info").line.client.tls.enabled);
  for (const char* half : {"info --cert a", "info --key a"}) {
    const Parsed parsed = Parse(half);
    EXPECT_EQ(parsed.code, std::optional<int>(kUsage));
    EXPECT_THAT(parsed.output.err, HasSubstr("--cert and --key go together")) << half;
  }
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
  const Parsed parsed = Parse("submit --name n --request-id r --detach --every 5 --reconnect 7");
  EXPECT_EQ(parsed.line.command, Command::kSubmit);
  EXPECT_EQ(parsed.line.start.name(), "n");
  EXPECT_EQ(parsed.line.start.request_id(), "r");
  EXPECT_TRUE(parsed.line.detach);
  EXPECT_EQ(parsed.line.stream.every_n_steps(), 5);
  EXPECT_EQ(parsed.line.client.reconnect_timeout, absl::Seconds(7));
  EXPECT_EQ(Parse("watch a --reconnect 0").line.client.reconnect_timeout, absl::ZeroDuration());
  EXPECT_EQ(Parse("watch a").line.client.reconnect_timeout, absl::Seconds(60));
  EXPECT_EQ(parsed.line.start.start_from_case(), v1::StartRequest::START_FROM_NOT_SET);
  const v1::ResumeFrom from = Parse("submit --resume-from abc@7").line.start.resume_from();
  EXPECT_EQ(from.job_id(), "abc");
  EXPECT_EQ(from.step(), 7);
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
  parsed = Parse("checkpoints a");
  EXPECT_EQ(parsed.line.command, Command::kCheckpoints);
  EXPECT_EQ(parsed.line.job_id, "a");
}

TEST(CommandLineTest, CommandsOfSeveralJobs) {
  for (const auto& [name, command] : std::vector<std::pair<std::string, Command>>{
           {"pause", Command::kPause}, {"resume", Command::kResume}, {"rm", Command::kRemove}}) {
    const Parsed parsed = Parse(name + " a --json b c");
    EXPECT_EQ(parsed.code, std::nullopt) << parsed.output.err;
    EXPECT_EQ(parsed.line.command, command);
    EXPECT_TRUE(parsed.line.json);
    EXPECT_THAT(parsed.line.job_ids, ElementsAre("a", "b", "c"));
  }
}

}  // namespace
}  // namespace lenet::ctl
