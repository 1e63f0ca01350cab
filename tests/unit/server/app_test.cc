// RunServer from its start to its end, in this process.
#include "server/app.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "lenet/v1/training_service.grpc.pb.h"
#include "server/rpc/listener.h"
#include "tests/support/dataset_files.h"
#include "tests/support/synthetic_data.h"
#include "tests/support/temp_folder.h"
#include "trainer/base/log.h"
#include "trainer/base/mutex.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class AppTest : public ::testing::Test {
 protected:
  AppTest() {
    SetLogSink([this](LogLevel, absl::string_view line) {
      MutexLock lock(&mutex_);
      log_ += std::string(line) + "\n";
    });
    config_.listen = {"127.0.0.1:0"};
    config_.data_dirs = {folder_.path() / "data"};
    config_.state_dir = folder_.path() / "state";
    config_.backend = "cpu";
    config_.plugin_dir = LENET_PLUGIN_DIR;
    config_.drain_timeout = std::chrono::seconds(20);
    config_.port_file = folder_.path() / "port";
    config_.metrics_listen = kNoMetrics;  // its port is one for the whole machine
  }
  ~AppTest() override { SetLogSink(nullptr); }

  std::string log() {
    MutexLock lock(&mutex_);
    return log_;
  }

  static int Run(const ServerConfig& config, ShutdownSignals* signals) {
    ConfigReloader reloader({}, config, /*file_found=*/false);
    return RunServer(config, signals, &reloader);
  }

  bool HasPlugin() const { return fs::exists(fs::path(config_.plugin_dir) / "liblenet_cpu.so"); }

  // The address, once the server serves; empty if it does not come.
  std::string AwaitPortFile() const {
    for (int i = 0; i < 6000 && !fs::exists(config_.port_file); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::string address;
    std::getline(std::ifstream(config_.port_file) >> std::ws, address);
    return address;
  }

  TempFolder folder_;
  ServerConfig config_;
  Mutex mutex_;
  std::string log_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(AppTest, WithoutAPluginThereIsNoBackend) {
  config_.plugin_dir = folder_.path();
  ShutdownSignals signals;
  for (const char* backend : {"cpu", "cuda", "auto"}) {
    config_.backend = backend;
    EXPECT_EQ(Run(config_, &signals), kExitBackend);
  }
  EXPECT_THAT(log(), HasSubstr("liblenet_cpu.so"));
}

TEST_F(AppTest, AStateFolderThatCannotBeMadeIsAnError) {
  std::ofstream(folder_.path() / "file") << "x";
  config_.state_dir = folder_.path() / "file" / "state";
  ShutdownSignals signals;
  EXPECT_EQ(Run(config_, &signals), kExitState);
  EXPECT_THAT(log(), HasSubstr("--state-dir"));
}

TEST_F(AppTest, ServesUntilASignalComes) {
  if (!HasPlugin()) GTEST_SKIP() << "no CPU plug-in in " << config_.plugin_dir;
  ASSERT_TRUE(WriteDataset(folder_.path() / "data" / "small", *SyntheticDataset(640, 100)));
  ShutdownSignals signals;
  int exit_code = -1;
  std::thread server([&] { exit_code = Run(config_, &signals); });
  const std::string address = AwaitPortFile();
  const auto stub = v1::TrainingService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));

  v1::StartRequest start;
  start.mutable_spec()->set_dataset("small");
  start.mutable_spec()->set_ranks(1);
  start.mutable_spec()->set_batch_size(16);
  start.mutable_spec()->set_max_steps(1'000'000'000);
  v1::StartResponse started;
  {
    grpc::ClientContext context;
    const grpc::Status status = stub->Start(&context, start, &started);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  // The stream sees losses, then the signal's work.
  v1::StreamMetricsRequest request;
  request.set_job_id(started.job().id());
  grpc::ClientContext context;
  const auto reader = stub->StreamMetrics(&context, request);
  v1::StreamMetricsResponse response;
  bool signalled = false;
  v1::StateChange change;
  std::string checkpoint;
  while (reader->Read(&response)) {
    for (const v1::MetricRecord& record : response.records()) {
      if (record.has_step_losses() && !signalled) {
        signalled = true;
        ::kill(::getpid(), SIGTERM);
      }
      if (record.has_checkpoint_saved()) checkpoint = record.checkpoint_saved().path();
      if (record.has_state_change()) change = record.state_change();
    }
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  server.join();
  EXPECT_EQ(exit_code, kExitOk) << log();
  EXPECT_EQ(change.to(), v1::QUEUED);
  EXPECT_THAT(change.reason(), HasSubstr("the server is shutting down; goes on from step "));
  EXPECT_THAT(checkpoint, HasSubstr((config_.state_dir / "jobs" / started.job().id()).string()));
  EXPECT_TRUE(fs::exists(checkpoint));
  EXPECT_FALSE(fs::exists(config_.port_file));
  EXPECT_THAT(log(), HasSubstr("backend cpu"));
}

TEST_F(AppTest, WithoutItsMetricsAddressItDoesNotServe) {
  if (!HasPlugin()) GTEST_SKIP() << "no CPU plug-in in " << config_.plugin_dir;
  const absl::StatusOr<std::unique_ptr<Listener>> taken = Listener::Bind({.host = "127.0.0.1"});
  ASSERT_TRUE(taken.ok()) << taken.status();
  config_.metrics_listen = (*taken)->address();
  ShutdownSignals signals;
  EXPECT_EQ(Run(config_, &signals), kExitListen);
  EXPECT_THAT(log(), ::testing::AllOf(HasSubstr("--metrics-listen"), HasSubstr((*taken)->address()),
                                      HasSubstr("Address already in use")));
  EXPECT_FALSE(fs::exists(config_.port_file));
}

TEST_F(AppTest, WithoutTheDefaultMetricsAddressItServesNoMetrics) {
  if (!HasPlugin()) GTEST_SKIP() << "no CPU plug-in in " << config_.plugin_dir;
  config_.metrics_listen = ServerConfig().metrics_listen;
  // Another server on this machine may have it already.
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(config_.metrics_listen);
  ASSERT_TRUE(address.ok()) << address.status();
  const absl::StatusOr<std::unique_ptr<Listener>> taken = Listener::Bind(*address);
  ShutdownSignals signals;
  ::kill(::getpid(), SIGTERM);
  signals.WaitForFirst();
  EXPECT_EQ(Run(config_, &signals), kExitOk);
  EXPECT_THAT(log(), ::testing::AllOf(HasSubstr("no metrics are served: --metrics-listen"),
                                      HasSubstr(config_.metrics_listen), HasSubstr("Address already in use")));
}

TEST_F(AppTest, MetricsBeyondThisMachineAreWarnedOf) {
  if (!HasPlugin()) GTEST_SKIP() << "no CPU plug-in in " << config_.plugin_dir;
  ShutdownSignals signals;
  ::kill(::getpid(), SIGTERM);
  signals.WaitForFirst();
  config_.metrics_listen = "127.0.0.1:0";
  EXPECT_EQ(Run(config_, &signals), kExitOk);
  EXPECT_THAT(log(), HasSubstr("metrics: http://127.0.0.1:"));
  EXPECT_THAT(log(), ::testing::Not(HasSubstr("without encryption")));
  config_.metrics_listen = "0.0.0.0:0";
  EXPECT_EQ(Run(config_, &signals), kExitOk);
  EXPECT_THAT(log(), HasSubstr("--metrics-listen: whoever reaches http://0.0.0.0:"));
}

TEST_F(AppTest, AReloadTakesEffectWhileItServes) {
  if (!HasPlugin()) GTEST_SKIP() << "no CPU plug-in in " << config_.plugin_dir;
  ASSERT_TRUE(WriteDataset(folder_.path() / "other" / "small", *SyntheticDataset(640, 100)));
  config_.max_jobs_per_client = 1;
  const ConfigSources sources = {.file = folder_.path() / "lenetd.toml"};
  ConfigReloader reloader(sources, config_, /*file_found=*/true);
  ShutdownSignals signals;
  int exit_code = -1;
  std::thread server([&] { exit_code = RunServer(config_, &signals, &reloader); });
  const auto stub =
      v1::TrainingService::NewStub(grpc::CreateChannel(AwaitPortFile(), grpc::InsecureChannelCredentials()));
  v1::StartRequest start;
  start.mutable_spec()->set_dataset("small");
  start.mutable_spec()->set_ranks(1);
  start.mutable_spec()->set_batch_size(16);
  start.mutable_spec()->set_max_steps(1'000'000'000);
  const auto try_start = [&] {
    grpc::ClientContext context;
    v1::StartResponse started;
    return stub->Start(&context, start, &started);
  };
  EXPECT_EQ(try_start().error_code(), grpc::StatusCode::NOT_FOUND);

  std::ofstream(sources.file) << "data_dir = ['" << (folder_.path() / "other").string()
                              << "']\nlog_level = 'debug'\n[limits]\nmax_jobs_per_client = 2\nmax_job_days = 1\n";
  reloader.Reload();
  EXPECT_TRUE(try_start().ok());
  EXPECT_TRUE(try_start().ok());
  EXPECT_THAT(try_start().error_message(), HasSubstr("the limit is 2"));
  EXPECT_THAT(log(), HasSubstr("data sets: small; looked in " + (folder_.path() / "other").string()));

  ::kill(::getpid(), SIGTERM);
  server.join();
  EXPECT_EQ(exit_code, kExitOk);
  // There is nothing left that it could be applied to.
  std::ofstream(sources.file) << "";
  reloader.Reload();
  EXPECT_THAT(log(), ::testing::Not(HasSubstr("limits.max_jobs_per_client: 2 ->")));
}

TEST_F(AppTest, ASignalBeforeItServesEndsIt) {
  if (!HasPlugin()) GTEST_SKIP() << "no CPU plug-in in " << config_.plugin_dir;
  ShutdownSignals signals;
  ::kill(::getpid(), SIGTERM);
  signals.WaitForFirst();
  EXPECT_EQ(Run(config_, &signals), kExitOk);
  EXPECT_FALSE(fs::exists(config_.port_file));
  EXPECT_THAT(log(), ::testing::Not(HasSubstr("serving on")));
}

TEST_F(AppTest, FoldersOfUnknownJobsAreTold) {
  if (!HasPlugin()) GTEST_SKIP() << "no CPU plug-in in " << config_.plugin_dir;
  ShutdownSignals signals;
  ::kill(::getpid(), SIGTERM);
  signals.WaitForFirst();
  EXPECT_EQ(Run(config_, &signals), kExitOk);
  EXPECT_THAT(log(), ::testing::Not(HasSubstr("the database does not know")));
  fs::create_directories(config_.state_dir / "jobs" / "0123456789abcdef");
  EXPECT_EQ(Run(config_, &signals), kExitOk);
  EXPECT_THAT(log(), HasSubstr("folders of 1 jobs that the database does not know, 0123456789abcdef among them"));
}

TEST_F(AppTest, APortFileThatCannotBeWrittenIsAnError) {
  if (!HasPlugin()) GTEST_SKIP() << "no CPU plug-in in " << config_.plugin_dir;
  config_.port_file = folder_.path() / "missing" / "port";
  ShutdownSignals signals;
  EXPECT_EQ(Run(config_, &signals), kExitFailure);
  EXPECT_THAT(log(), HasSubstr("--port-file"));
}

TEST_F(AppTest, APortFileThatAnotherWroteIsLeftAlone) {
  if (!HasPlugin()) GTEST_SKIP() << "no CPU plug-in in " << config_.plugin_dir;
  std::ofstream(config_.port_file) << "from an earlier run\n";
  ShutdownSignals signals;
  int exit_code = -1;
  std::thread server([&] { exit_code = Run(config_, &signals); });
  while (AwaitPortFile() == "from an earlier run") std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_THAT(AwaitPortFile(), HasSubstr("127.0.0.1:"));
  std::ofstream(config_.port_file) << "127.0.0.1:1\n";
  ::kill(::getpid(), SIGTERM);
  server.join();
  EXPECT_EQ(exit_code, kExitOk);
  EXPECT_EQ(AwaitPortFile(), "127.0.0.1:1");
}

TEST_F(AppTest, APortFileThatIsNoFileIsRefusedAndLeftAlone) {
  ShutdownSignals signals;
  ASSERT_EQ(::mkfifo((folder_.path() / "pipe").c_str(), 0600), 0);
  fs::create_symlink(folder_.path() / "nowhere", folder_.path() / "link");
  for (const fs::path& path :
       {folder_.path() / "pipe", folder_.path() / "link", folder_.path(), fs::path("/dev/null")}) {
    const fs::file_type before = fs::symlink_status(path).type();
    config_.port_file = path;
    EXPECT_EQ(Run(config_, &signals), kExitFailure) << path;
    EXPECT_EQ(fs::symlink_status(path).type(), before) << path;
    EXPECT_THAT(log(), HasSubstr("--port-file: '" + path.string()));
  }
}

TEST_F(AppTest, AStateFolderInUseOrDamagedIsAnError) {
  if (!HasPlugin()) GTEST_SKIP() << "no CPU plug-in in " << config_.plugin_dir;
  ShutdownSignals signals;
  int exit_code = -1;
  std::thread server([&] { exit_code = Run(config_, &signals); });
  AwaitPortFile();
  ServerConfig second = config_;
  second.port_file.clear();
  ShutdownSignals unused;
  EXPECT_EQ(Run(second, &unused), kExitState);
  EXPECT_THAT(log(), HasSubstr("another lenetd has '" + config_.state_dir.string() + "' in use"));
  second.state_dir = folder_.path() / "damaged";
  fs::create_directories(second.state_dir);
  std::ofstream(second.state_dir / "lenetd.db") << std::string(5000, 'x');
  EXPECT_EQ(Run(second, &unused), kExitState);
  EXPECT_THAT(log(), HasSubstr("lenetd.db"));
  while (signals.count() == 0) {
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  server.join();
  EXPECT_EQ(exit_code, kExitOk);
}

TEST_F(AppTest, APortInUseIsAnError) {
  if (!HasPlugin()) GTEST_SKIP() << "no CPU plug-in in " << config_.plugin_dir;
  ShutdownSignals signals;
  int exit_code = -1;
  std::thread server([&] { exit_code = Run(config_, &signals); });
  ServerConfig second = config_;
  second.listen = {AwaitPortFile()};
  second.port_file.clear();
  second.state_dir = folder_.path() / "state2";
  ShutdownSignals unused;
  EXPECT_EQ(Run(second, &unused), kExitListen);
  EXPECT_THAT(log(), HasSubstr("Address already in use"));
  second.listen = {"nonsense"};
  EXPECT_EQ(Run(second, &unused), kExitUsage);
  // Either may get the signal.
  while (signals.count() == 0) {
    ::kill(::getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  server.join();
  EXPECT_EQ(exit_code, kExitOk);
}

}  // namespace
}  // namespace lenet
