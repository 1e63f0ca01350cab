#include "server/config.h"

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// NOLINTBEGIN(concurrency-mt-unsafe): there is one thread
class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    for (const char* name : {"STATE_DIRECTORY", "XDG_STATE_HOME", "XDG_DATA_HOME", "HOME"}) Set(name, std::nullopt);
  }
  ~ConfigTest() override {
    for (const auto& [name, value] : before_) Put(name, value);
  }

  // Until the test is over.
  void Set(const std::string& name, const std::optional<std::string>& value) {
    const char* const old = std::getenv(name.c_str());
    before_.try_emplace(name, old == nullptr ? std::optional<std::string>() : std::optional<std::string>(old));
    Put(name, value);
  }

  CommandLine Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "lenetd");
    return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
  }

 private:
  static void Put(const std::string& name, const std::optional<std::string>& value) {
    if (value) {
      ::setenv(name.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name.c_str());
    }
  }

  std::map<std::string, std::optional<std::string>> before_;
};
// NOLINTEND(concurrency-mt-unsafe)

TEST_F(ConfigTest, Defaults) {
  const CommandLine line = Parse({});
  ASSERT_TRUE(line.config.has_value());
  EXPECT_EQ(line.config->listen, "127.0.0.1:50051");
  EXPECT_EQ(line.config->backend, "auto");
  EXPECT_EQ(line.config->plugin_dir, "");
  EXPECT_EQ(line.config->log_level, LogLevel::kInfo);
  EXPECT_EQ(line.config->drain_timeout, std::chrono::seconds(30));
  EXPECT_EQ(line.config->metrics_listen, "127.0.0.1:25051");
  EXPECT_TRUE(line.config->port_file.empty());
  EXPECT_EQ(line.config->state_dir, "/var/lib/lenet");
  EXPECT_THAT(line.config->data_dirs, ElementsAre("/usr/share/datasets", "/var/lib/lenet/datasets"));
}

TEST_F(ConfigTest, DefaultFoldersComeFromTheEnvironment) {
  Set("HOME", "/home/u");
  EXPECT_EQ(DefaultStateDir(), "/home/u/.local/state/lenetd");
  EXPECT_THAT(DefaultDataDirs(),
              ElementsAre("/usr/share/datasets", "/var/lib/lenet/datasets", "/home/u/.local/share/lenet/datasets"));
  Set("XDG_STATE_HOME", "/xdg/state");
  Set("XDG_DATA_HOME", "/xdg/data");
  EXPECT_EQ(DefaultStateDir(), "/xdg/state/lenetd");
  EXPECT_THAT(DefaultDataDirs(), ::testing::Contains("/xdg/data/lenet/datasets"));
  Set("STATE_DIRECTORY", "/var/lib/one:/var/lib/two");
  EXPECT_EQ(DefaultStateDir(), "/var/lib/one");
}

TEST_F(ConfigTest, TakesEveryFlag) {
  const CommandLine line =
      Parse({"--listen", "0.0.0.0:0", "--data-dir", "/a", "--data-dir", "/b", "--state-dir", "/s", "--backend", "cpu",
             "--plugin-dir", "/p", "--log-level", "debug", "--drain-timeout", "1.5", "--port-file", "/tmp/port"});
  ASSERT_TRUE(line.config.has_value());
  EXPECT_EQ(line.config->listen, "0.0.0.0:0");
  EXPECT_THAT(line.config->data_dirs, ElementsAre("/a", "/b"));
  EXPECT_EQ(line.config->state_dir, "/s");
  EXPECT_EQ(line.config->backend, "cpu");
  EXPECT_EQ(line.config->plugin_dir, "/p");
  EXPECT_EQ(line.config->log_level, LogLevel::kDebug);
  EXPECT_EQ(line.config->drain_timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(line.config->port_file, "/tmp/port");
}

TEST_F(ConfigTest, MetricsAreServedOnAnAddressOrNot) {
  for (const char* off : {"off", ""}) {
    const CommandLine line = Parse({"--metrics-listen", off});
    ASSERT_TRUE(line.config.has_value()) << off;
    EXPECT_EQ(line.config->metrics_listen, "") << off;
  }
  EXPECT_EQ(Parse({"--metrics-listen", "[::1]:0"}).config->metrics_listen, "[::1]:0");
  for (const char* bad : {"unix:/run/metrics", "9464", "localhost:65536", "127.0.0.1:1,127.0.0.1:2", "on"}) {
    ::testing::internal::CaptureStderr();
    const CommandLine line = Parse({"--metrics-listen", bad});
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                ::testing::AllOf(HasSubstr("--metrics-listen"), HasSubstr(bad)));
    EXPECT_EQ(line.exit_code, kExitUsage) << bad;
  }
}

TEST_F(ConfigTest, HelpAndVersionEndWithZero) {
  ::testing::internal::CaptureStdout();
  const CommandLine version = Parse({"--version"});
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), ::testing::MatchesRegex("lenetd [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  EXPECT_FALSE(version.config.has_value());
  EXPECT_EQ(version.exit_code, kExitOk);
  ::testing::internal::CaptureStdout();
  const CommandLine help = Parse({"--help"});
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              ::testing::AllOf(HasSubstr("--drain-timeout"), HasSubstr("Exit codes"),
                               HasSubstr("6 state folder in use, damaged or\nnot writable")));
  EXPECT_FALSE(help.config.has_value());
  EXPECT_EQ(help.exit_code, kExitOk);
}

TEST_F(ConfigTest, RefusesWhatItDoesNotKnow) {
  const std::vector<std::vector<const char*>> bad = {
      {"--unknown"},
      {"extra"},
      {"--backend", "tpu"},
      {"--log-level", "loud"},
      {"--backend"},
      {"--drain-timeout", "soon"},
      {"--drain-timeout", "-1"},
      {"--drain-timeout", "nan"},
      {"--drain-timeout", "inf"},
      {"--drain-timeout", "86401"},
      {"--collective-timeout", "0.0000001"},
      {"--collective-timeout", "0.0009"},
      {"--listen", "foo"},
      {"--listen", ":5"},
      {"--listen", "1.2.3.4:99999"},
      {"--listen", "::1:0"},
      {"--listen", "unix:"},
      {"--listen", ""},
      {"--state-dir", ""},
      {"--data-dir", ""},
  };
  for (const std::vector<const char*>& arguments : bad) {
    ::testing::internal::CaptureStderr();
    const CommandLine line = Parse(arguments);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_FALSE(line.config.has_value()) << arguments[0];
    EXPECT_EQ(line.exit_code, kExitUsage) << arguments[0];
    EXPECT_THAT(said, HasSubstr(arguments[0]));
  }
}

}  // namespace
}  // namespace lenet
