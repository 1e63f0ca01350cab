#include "server/config_reloader.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"
#include "trainer/base/log.h"

namespace lenet {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConfigReloaderTest : public ::testing::Test {
 protected:
  ConfigReloaderTest() {
    SetLogSink([this](LogLevel level, absl::string_view line) {
      MutexLock lock(&mutex_);
      log_.push_back((level == LogLevel::kError     ? "error: "
                      : level == LogLevel::kWarning ? "warning: "
                                                    : "") +
                     std::string(line));
    });
    sources_.file = folder_.path() / "lenetd.toml";
    sources_.environment = {{"LENETD_MAX_JOBS_PER_CLIENT", "3"}};
    sources_.flags = {{"limits.max_job_days", {"4"}}, {"state_dir", {"/s"}}, {"data_dir", {"/d"}}};
  }
  ~ConfigReloaderTest() override { SetLogSink(nullptr); }

  void Write(const std::string& text) { std::ofstream(sources_.file) << text; }

  ConfigReloader Reloader() {
    const LoadedConfig loaded = LoadConfig(sources_);
    EXPECT_THAT(loaded.errors, IsEmpty());
    return {sources_, loaded.config, loaded.file_found};
  }

  // The lines since the last call.
  std::vector<std::string> Logged() {
    MutexLock lock(&mutex_);
    return std::exchange(log_, {});
  }

  TempFolder folder_;
  ConfigSources sources_;
  Mutex mutex_;
  std::vector<std::string> log_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(ConfigReloaderTest, AppliesWhatCanChangeAndNamesTheRest) {
  Write("listen = 'a:1'\n[limits]\nmax_queued = 5\n");
  ConfigReloader reloader = Reloader();
  std::vector<ServerConfig> applied;
  reloader.SetApply([&](const ServerConfig& config) { applied.push_back(config); });
  const std::string file = sources_.file;

  Write("listen = 'b:1'\nlog_level = 'debug'\n[limits]\nmax_queued = 6\nmax_jobs_per_client = 7\nmax_job_days = 8\n");
  reloader.Reload();
  ASSERT_EQ(applied.size(), 1u);
  EXPECT_EQ(applied[0].max_queued, 6u);
  EXPECT_EQ(applied[0].log_level, LogLevel::kDebug);
  EXPECT_THAT(applied[0].listen, ElementsAre("a:1"));
  // The environment and the flags still go before the file.
  EXPECT_EQ(applied[0].max_jobs_per_client, 3u);
  EXPECT_EQ(applied[0].max_job_days, 4);
  EXPECT_THAT(applied[0].data_dirs, ElementsAre("/d"));
  EXPECT_THAT(Logged(),
              ElementsAre("warning: reload: listen: [\"a:1\"] -> [\"b:1\"] (" + file + ":1) needs a restart",
                          "reload: log_level: \"info\" -> \"debug\" (" + file + ":2)",
                          "reload: limits.max_queued: 5 -> 6 (" + file + ":4)", "reload: done, 2 settings changed"));

  // What needs a restart is told again, what has changed is not.
  reloader.Reload();
  EXPECT_EQ(applied.size(), 1u);
  EXPECT_THAT(Logged(), ElementsAre("warning: reload: listen: [\"a:1\"] -> [\"b:1\"] (" + file + ":1) needs a restart",
                                    "reload: done, 0 settings changed"));

  // A setting that the file has no more gets its default again.
  Write("listen = 'a:1'\n");
  reloader.Reload();
  ASSERT_EQ(applied.size(), 2u);
  EXPECT_EQ(applied[1].max_queued, 1000u);
  EXPECT_EQ(applied[1].log_level, LogLevel::kInfo);
  EXPECT_THAT(Logged(),
              ElementsAre("reload: log_level: \"debug\" -> \"info\" (default)",
                          "reload: limits.max_queued: 6 -> 1000 (default)", "reload: done, 2 settings changed"));
}

TEST_F(ConfigReloaderTest, EveryReloadableSettingIsApplied) {
  sources_.environment.clear();
  sources_.flags.clear();
  Write("");
  ConfigReloader reloader = Reloader();
  ServerConfig applied;
  reloader.SetApply([&](const ServerConfig& config) { applied = config; });
  Write(
      "data_dir = ['/a', '/b']\nlog_level = 'error'\n"
      "[limits]\nmax_queued = 5\nmax_jobs_per_client = 6\nmax_job_days = 7\n");
  reloader.Reload();
  EXPECT_THAT(applied.data_dirs, ElementsAre("/a", "/b"));
  EXPECT_EQ(applied.log_level, LogLevel::kError);
  EXPECT_EQ(applied.max_queued, 5u);
  EXPECT_EQ(applied.max_jobs_per_client, 6u);
  EXPECT_EQ(applied.max_job_days, 7);
}

TEST_F(ConfigReloaderTest, ABadFileChangesNothing) {
  Write("[limits]\nmax_queued = 5\n");
  ConfigReloader reloader = Reloader();
  std::vector<ServerConfig> applied;
  reloader.SetApply([&](const ServerConfig& config) { applied.push_back(config); });
  const std::string file = sources_.file;

  Write("log_level = 'debug'\n[limits]\nmax_queued = 0\nmax_quened = 1\n");
  reloader.Reload();
  EXPECT_THAT(Logged(), ElementsAre("error: reload: " + file + ":3:14: limits.max_queued = 0: must be 1 to 1000000",
                                    AllOf(HasSubstr(":4:1: "), HasSubstr("did you mean limits.max_queued?")),
                                    "error: reload: the configuration stays as it is"));
  std::filesystem::remove(sources_.file);
  reloader.Reload();
  EXPECT_THAT(Logged(), ElementsAre(HasSubstr("No such file"), HasSubstr("stays as it is")));
  EXPECT_THAT(applied, IsEmpty());

  Write("[limits]\nmax_queued = 6\n");
  reloader.Reload();
  ASSERT_EQ(applied.size(), 1u);
  EXPECT_EQ(applied[0].max_queued, 6u);
  EXPECT_EQ(applied[0].log_level, LogLevel::kInfo);
}

TEST_F(ConfigReloaderTest, AFileThatWasNotThereMayComeAndThenHasToStay) {
  ConfigReloader reloader = Reloader();
  int applied = 0;
  reloader.SetApply([&](const ServerConfig&) { ++applied; });
  reloader.Reload();
  EXPECT_THAT(Logged(), ElementsAre("reload: done, 0 settings changed"));
  Write("[limits]\nmax_queued = 6\n");
  reloader.Reload();
  EXPECT_EQ(applied, 1);
  Logged();
  std::filesystem::remove(sources_.file);
  reloader.Reload();
  EXPECT_EQ(applied, 1);
  EXPECT_THAT(Logged(), ElementsAre(HasSubstr("No such file"), HasSubstr("stays as it is")));
}

TEST_F(ConfigReloaderTest, OneThatComesEarlyWaitsUntilItCanBeApplied) {
  Write("[limits]\nmax_queued = 5\n");
  ConfigReloader reloader = Reloader();
  Write("[limits]\nmax_queued = 6\n");
  reloader.Reload();
  EXPECT_THAT(Logged(), IsEmpty());
  std::vector<size_t> applied;
  reloader.SetApply([&](const ServerConfig& config) { applied.push_back(config.max_queued); });
  EXPECT_THAT(applied, ElementsAre(6));
  reloader.SetApply(nullptr);
  Write("[limits]\nmax_queued = 7\n");
  reloader.Reload();
  EXPECT_THAT(applied, ElementsAre(6));
}

TEST_F(ConfigReloaderTest, WhereThereIsAnAccessFileEachReloadIsApplied) {
  Write("access_file = '/rules'\n");
  ConfigReloader reloader = Reloader();
  int applied = 0;
  reloader.SetApply([&](const ServerConfig&) { ++applied; });
  reloader.Reload();
  reloader.Reload();
  EXPECT_EQ(applied, 2);
}

TEST_F(ConfigReloaderTest, ThreadsReloadOneAfterTheOther) {
  Write("");
  ConfigReloader reloader = Reloader();
  std::atomic<int> within{0};
  std::atomic<int> applied{0};
  reloader.SetApply([&](const ServerConfig&) {
    EXPECT_EQ(++within, 1);
    ++applied;
    std::this_thread::yield();
    --within;
  });
  Write("[limits]\nmax_queued = 5\n");
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { reloader.Reload(); });
  reloader.SetApply(nullptr);
  EXPECT_EQ(within, 0);
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(applied, 1);
}

}  // namespace
}  // namespace lenet
