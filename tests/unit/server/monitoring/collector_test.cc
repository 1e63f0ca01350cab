// The text of a scrape.
#include "server/monitoring/collector.h"

#include <chrono>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"
#include "tests/support/server_under_test.h"

namespace lenet {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

class CollectorTest : public ::testing::Test {
 protected:
  explicit CollectorTest(ServerUnderTestOptions options = Paced()) : server_(std::move(options)) {
    sources_ = {.version = "1.2.3",
                .backend = &server_.backend(),
                .manager = &server_.manager(),
                .store = &store_,
                .calls = &calls_,
                .streams = [] { return StreamLoad{.open = 3, .max_lag = 7, .sent_bytes = 1000}; }};
  }

  std::string Text() const {
    const prometheus::TextSerializer serializer;
    return serializer.Serialize(CollectMetrics(sources_));
  }

  // The value of each series, by its name with its labels.
  std::map<std::string, std::string> Scrape() const {
    std::map<std::string, std::string> series;
    const std::vector<std::string> lines = absl::StrSplit(Text(), '\n', absl::SkipEmpty());
    for (const std::string& line : lines) {
      if (absl::StartsWith(line, "#")) continue;
      const size_t space = line.rfind(' ');
      EXPECT_TRUE(series.emplace(line.substr(0, space), line.substr(space + 1)).second) << line << " stands twice";
    }
    return series;
  }

  ServerUnderTest server_;
  CountingStore store_{&server_.store()};
  RpcCounters calls_{{{.service = "a.S", .method = "M"}, {.service = "a.S", .method = "W", .streams = true}}};
  MonitorSources sources_;
};

TEST_F(CollectorTest, AnIdleServer) {
  const std::map<std::string, std::string> series = Scrape();
  EXPECT_THAT(series, Contains(Pair(R"(lenet_build_info{version="1.2.3",backend="fake"})", "1")));
  EXPECT_THAT(series, Contains(Pair(R"(lenet_jobs{state="RUNNING"})", "0")));
  EXPECT_THAT(series, Contains(Pair(R"(lenet_device_healthy{device="1"})", "1")));
  EXPECT_THAT(series, Contains(Pair(R"(lenet_device_busy{device="1"})", "0")));
  EXPECT_THAT(series, Contains(Pair("lenet_draining", "0")));
  EXPECT_THAT(series, Contains(Pair("lenet_stream_subscribers", "3")));
  EXPECT_THAT(series, Contains(Pair("lenet_stream_lag_records", "7")));
  EXPECT_THAT(series, Contains(Pair("lenet_stream_sent_bytes_total", "1000")));
  EXPECT_THAT(series, Contains(Key("process_resident_memory_bytes")));
  for (const auto& [name, value] : series) {
    EXPECT_FALSE(absl::StartsWith(name, "lenet_job_loss") || absl::StartsWith(name, "lenet_gpu")) << name;
  }
}

TEST_F(CollectorTest, EveryNameHasHelpAndAFittingType) {
  const std::string text = Text();
  for (const prometheus::MetricFamily& family : CollectMetrics(sources_)) {
    EXPECT_THAT(text, HasSubstr("# HELP " + family.name + " "));
    EXPECT_THAT(text, HasSubstr("# TYPE " + family.name + " "));
    EXPECT_EQ(absl::EndsWith(family.name, "_total"), family.type == prometheus::MetricType::Counter) << family.name;
  }
}

TEST_F(CollectorTest, ARunningJobHasItsSeriesUntilItEnds) {
  const std::string id = server_.manager().Start(ServerUnderTest::Request(0, 2)).value().id();
  server_.AwaitStep(id, 3);
  const std::map<std::string, std::string> running = Scrape();
  const std::string labels = "{job_id=\"" + id + "\"";
  for (const char* rank : {"0", "1"}) {
    const auto loss = running.find("lenet_job_loss" + labels + ",rank=\"" + rank + "\"}");
    ASSERT_NE(loss, running.end());
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(loss->second, &value));
    EXPECT_GT(value, 0);
  }
  EXPECT_THAT(running, Contains(Key("lenet_job_step" + labels + "}")));
  EXPECT_THAT(running, Contains(Pair(R"(lenet_jobs{state="RUNNING"})", "1")));
  EXPECT_THAT(running, Contains(Pair(R"(lenet_device_busy{device="0"})", "1")));

  ASSERT_TRUE(server_.manager().Stop(id, StopMode::kAbort).ok());
  ASSERT_TRUE(Eventually([&] { return server_.manager().Running().empty(); }));
  const std::map<std::string, std::string> ended = Scrape();
  for (const auto& [name, value] : ended) EXPECT_THAT(name, Not(HasSubstr(id)));
  EXPECT_THAT(ended, Contains(Pair(R"(lenet_jobs{state="RUNNING"})", "0")));
  EXPECT_THAT(ended, Contains(Pair(R"(lenet_jobs{state="STOPPED"})", "1")));
}

TEST_F(CollectorTest, HistogramsAreCumulative) {
  RpcMethodCounters* const method = calls_.Find("/a.S/M");
  for (const double seconds : {0.0001, 0.0007, 0.004, 30.0}) method->handling.Observe(seconds);
  method->started.Add(5);
  method->handled[0].Add(3);
  method->handled[5].Add(1);
  method->in_flight = 1;
  const std::map<std::string, std::string> series = Scrape();
  const std::string labels = R"({grpc_service="a.S",grpc_method="M")";
  const std::string bucket = "grpc_server_handling_seconds_bucket" + labels + ",le=";
  EXPECT_THAT(series, Contains(Pair(bucket + R"("0.0005"})", "1")));
  EXPECT_THAT(series, Contains(Pair(bucket + R"("0.001"})", "2")));
  EXPECT_THAT(series, Contains(Pair(bucket + R"("10"})", "3")));
  EXPECT_THAT(series, Contains(Pair(bucket + R"("+Inf"})", "4")));
  EXPECT_THAT(series, Contains(Pair("grpc_server_handling_seconds_count" + labels + "}", "4")));
  EXPECT_THAT(series, Contains(Pair("grpc_server_started_total" + labels + "}", "5")));
  EXPECT_THAT(series, Contains(Pair("grpc_server_handled_total" + labels + R"(,grpc_code="OK"})", "3")));
  EXPECT_THAT(series, Contains(Pair("grpc_server_handled_total" + labels + R"(,grpc_code="NOT_FOUND"})", "1")));
  EXPECT_THAT(series, Contains(Pair("lenet_rpcs_in_flight" + labels + "}", "1")));
  EXPECT_THAT(series, Not(Contains(Key(R"(grpc_server_handling_seconds_count{grpc_service="a.S",grpc_method="W"})"))));
}

TEST_F(CollectorTest, AStoreThatIsAwayLeavesTheRest) {
  server_.store().count_fails = true;
  const std::map<std::string, std::string> series = Scrape();
  EXPECT_THAT(series, Not(Contains(Key(R"(lenet_jobs{state="RUNNING"})"))));
  EXPECT_THAT(series, Contains(Pair("lenet_draining", "0")));
  EXPECT_EQ(Scrape().at(R"(lenet_store_failures_total{operation="read"})"), "2");
}

class NanLossTest : public CollectorTest {
 protected:
  NanLossTest() : CollectorTest(Options()) {}

  static ServerUnderTestOptions Options() {
    ServerUnderTestOptions options = Paced(1);
    options.script = [](int) {
      FakeScript script = {.step_time = kStepTime};
      for (int step = 0; step < 10'000; ++step) {
        script.faults.push_back(
            {.kind = FakeFault::Kind::kLoss, .step = step, .loss = std::numeric_limits<float>::quiet_NaN()});
      }
      return script;
    };
    return options;
  }
};

TEST_F(NanLossTest, ALossThatIsNoNumberIsTold) {
  v1::StartRequest request = ServerUnderTest::Request(0);
  request.mutable_spec()->set_nan_policy(v1::NAN_POLICY_CONTINUE);
  const std::string id = server_.manager().Start(request).value().id();
  server_.AwaitStep(id, 3);
  EXPECT_THAT(Scrape(), Contains(Pair("lenet_job_loss{job_id=\"" + id + "\",rank=\"0\"}", "Nan")));
  ASSERT_TRUE(server_.manager().Stop(id, StopMode::kAbort).ok());
}

TEST_F(CollectorTest, GpusAsTheMonitorReadThem) {
  const auto gpus = GpuMonitor::Start({.library = LENET_FAKE_NVML, .interval = std::chrono::milliseconds(10)});
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  sources_.gpus = gpus->get();
  const std::string labels = R"({gpu="1",uuid="GPU-1")";
  ASSERT_TRUE(Eventually([&] { return Scrape().contains("lenet_gpu_temperature_celsius" + labels + "}"); }));
  const std::map<std::string, std::string> series = Scrape();
  EXPECT_THAT(series, Contains(Pair("lenet_gpu_info" + labels + R"(,name="Fake GPU"})", "1")));
  EXPECT_THAT(series, Contains(Pair("lenet_gpu_temperature_celsius" + labels + "}", "41")));
  EXPECT_THAT(series, Contains(Pair("lenet_gpu_memory_used_bytes" + labels + "}", "200")));
  EXPECT_THAT(series, Contains(Pair("lenet_gpu_utilization_ratio" + labels + "}", "0.75")));
  EXPECT_THAT(series, Contains(Pair("lenet_gpu_ecc_errors_total" + labels + R"(,type="uncorrected"})", "1")));
  EXPECT_THAT(series, Contains(Pair(R"(lenet_gpu_power_watts{gpu="0",uuid="GPU-0"})", "250.5")));
  EXPECT_THAT(series, Not(Contains(Key("lenet_gpu_power_watts" + labels + "}"))));
}

}  // namespace
}  // namespace lenet
