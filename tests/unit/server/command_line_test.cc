#include "server/command_line.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/server/environment_test.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CommandLineTest : public EnvironmentTest {
 protected:
  // Without a configuration file, unless one is named.
  CommandLine Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), {"lenetd", "--config", "/dev/null"});
    return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
  }
};

TEST_F(CommandLineTest, Defaults) {
  const CommandLine line = Parse({});
  ASSERT_TRUE(line.config.has_value());
  EXPECT_THAT(line.config->listen, ElementsAre());
  EXPECT_EQ(line.config->backend, "auto");
  EXPECT_EQ(line.config->plugin_dir, "");
  EXPECT_EQ(line.config->log_level, LogLevel::kInfo);
  EXPECT_EQ(line.config->drain_timeout, std::chrono::seconds(30));
  EXPECT_TRUE(line.config->port_file.empty());
  EXPECT_TRUE(line.config->running_jobs_go_on);
  EXPECT_EQ(line.config->collective_timeout, std::chrono::seconds(60));
  EXPECT_EQ(line.config->max_queued, 1000u);
  EXPECT_EQ(line.config->max_jobs_per_client, 0u);
  EXPECT_EQ(line.config->max_job_age(), absl::InfiniteDuration());
  EXPECT_FALSE(line.config->tls.any());
  EXPECT_FALSE(line.config->insecure);
  EXPECT_EQ(line.config->state_dir, "/var/lib/lenet");
  EXPECT_THAT(line.config->data_dirs, ElementsAre("/usr/share/datasets", "/var/lib/lenet/datasets"));
}

TEST_F(CommandLineTest, DefaultFoldersComeFromTheEnvironment) {
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

TEST_F(CommandLineTest, TheDefaultSocketIsInTheRuntimeFolder) {
  Set("XDG_STATE_HOME", "/xdg/state");
  EXPECT_EQ(DefaultListen(), ::geteuid() == 0 ? "unix:/run/lenet/lenetd.sock" : "unix:/xdg/state/lenetd/lenetd.sock");
  Set("XDG_RUNTIME_DIR", "/run/user/7");
  EXPECT_EQ(DefaultListen(), ::geteuid() == 0 ? "unix:/run/lenet/lenetd.sock" : "unix:/run/user/7/lenet/lenetd.sock");
  Set("RUNTIME_DIRECTORY", "/run/one:/run/two");
  EXPECT_EQ(DefaultListen(), "unix:/run/one/lenetd.sock");
}

TEST_F(CommandLineTest, TakesEveryFlag) {
  const CommandLine line = Parse({"--listen",
                                  "0.0.0.0:0",
                                  "--listen",
                                  "unix:/a",
                                  "--data-dir",
                                  "/a",
                                  "--data-dir",
                                  "/b",
                                  "--state-dir",
                                  "/s",
                                  "--backend",
                                  "cpu",
                                  "--plugin-dir",
                                  "/p",
                                  "--log-level",
                                  "debug",
                                  "--drain-timeout",
                                  "1.5",
                                  "--port-file",
                                  "/tmp/port",
                                  "--on-restart",
                                  "fail",
                                  "--collective-timeout",
                                  "0.25",
                                  "--max-queued",
                                  "5",
                                  "--max-jobs-per-client",
                                  "6",
                                  "--max-job-days",
                                  "7",
                                  "--tls-cert",
                                  "/c",
                                  "--tls-key",
                                  "/k",
                                  "--tls-client-ca",
                                  "/r",
                                  "--insecure"});
  ASSERT_TRUE(line.config.has_value());
  EXPECT_THAT(line.config->listen, ElementsAre("0.0.0.0:0", "unix:/a"));
  EXPECT_THAT(line.config->data_dirs, ElementsAre("/a", "/b"));
  EXPECT_EQ(line.config->state_dir, "/s");
  EXPECT_EQ(line.config->backend, "cpu");
  EXPECT_EQ(line.config->plugin_dir, "/p");
  EXPECT_EQ(line.config->log_level, LogLevel::kDebug);
  EXPECT_EQ(line.config->drain_timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(line.config->port_file, "/tmp/port");
  EXPECT_FALSE(line.config->running_jobs_go_on);
  EXPECT_EQ(line.config->collective_timeout, std::chrono::milliseconds(250));
  EXPECT_EQ(line.config->max_queued, 5u);
  EXPECT_EQ(line.config->max_jobs_per_client, 6u);
  EXPECT_EQ(line.config->max_job_age(), absl::Hours(7 * 24));
  EXPECT_EQ(line.config->tls.certificate, "/c");
  EXPECT_EQ(line.config->tls.key, "/k");
  EXPECT_EQ(line.config->tls.client_ca, "/r");
  EXPECT_TRUE(line.config->insecure);
  EXPECT_FALSE(Parse({"--insecure=false"}).config->insecure);
}

TEST_F(CommandLineTest, HelpAndVersionEndWithZero) {
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

TEST_F(CommandLineTest, RefusesWhatItDoesNotKnow) {
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
      {"--tls-client-ca", ""},
      {"--port-file", ""},
      {"--max-queued", "0"},
      {"--max-queued", "1e3"},
      {"--max-jobs-per-client", "-1"},
      {"--max-job-days", "36501"},
      {"--on-restart", "maybe"},
      {"--insecure=maybe"},
      {"--state-dir", "/a", "--state-dir", "/b"},
  };
  for (const std::vector<const char*>& arguments : bad) {
    ::testing::internal::CaptureStderr();
    const CommandLine line = Parse(arguments);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_FALSE(line.config.has_value()) << arguments[0];
    EXPECT_EQ(line.exit_code, kExitUsage) << arguments[0];
    EXPECT_THAT(said, HasSubstr(std::string(arguments[0]).substr(0, std::string(arguments[0]).find('='))));
  }
}

TEST_F(CommandLineTest, AllBadFlagsAreNamed) {
  ::testing::internal::CaptureStderr();
  const CommandLine line = Parse({"--max-queued", "0", "--backend", "tpu", "--drain-timeout", "nan", "--tls-key", ""});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "--backend = \"tpu\": must be one of auto, cpu, cuda\n"
            "--drain-timeout = \"nan\": must be 0, or 0.001 to 86400 seconds\n"
            "--max-queued = \"0\": must be 1 to 1000000\n"
            "--tls-key = \"\": the value is empty\n"
            "Run with --help for more information.\n");
  EXPECT_EQ(line.exit_code, kExitUsage);
}

TEST_F(CommandLineTest, TheFileIsTheFlagsOrTheVariables) {
  const TempFolder folder;
  const std::string one = folder.path() / "one.toml";
  const std::string two = folder.path() / "two.toml";
  std::ofstream(one) << "log_level = 'debug'\n";
  std::ofstream(two) << "log_level = 'error'\n";
  const auto parse = [](const std::vector<const char*>& arguments) {
    return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
  };
  Set("LENETD_CONFIG", two);
  const CommandLine from_variable = parse({"lenetd"});
  ASSERT_TRUE(from_variable.config.has_value());
  EXPECT_EQ(from_variable.config->log_level, LogLevel::kError);
  EXPECT_TRUE(from_variable.file_found);
  EXPECT_EQ(from_variable.sources.file, two);

  const CommandLine from_flag = parse({"lenetd", "--config", one.c_str()});
  ASSERT_TRUE(from_flag.config.has_value());
  EXPECT_EQ(from_flag.config->log_level, LogLevel::kDebug);

  const CommandLine none = parse({"lenetd", "--config", "/dev/null"});
  ASSERT_TRUE(none.config.has_value());
  EXPECT_EQ(none.config->log_level, LogLevel::kInfo);
  EXPECT_FALSE(none.file_found);

  // One that is named has to be there.
  const std::string missing = folder.path() / "missing.toml";
  Set("LENETD_CONFIG", missing);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(parse({"lenetd"}).exit_code, kExitUsage);
  EXPECT_EQ(parse({"lenetd", "--config", missing.c_str()}).exit_code, kExitUsage);
  EXPECT_EQ(parse({"lenetd", "--config", folder.path().c_str()}).exit_code, kExitUsage);
  EXPECT_EQ(parse({"lenetd", "--config", ""}).exit_code, kExitUsage);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("'" + missing + "': No such file or directory\n"));
}

TEST_F(CommandLineTest, CheckConfigPrintsEveryValueWithItsOrigin) {
  const TempFolder folder;
  const std::string file = folder.path() / "lenetd.toml";
  std::ofstream(file) << "state_dir = '/a \"quoted\" \\ folder'\n\n[limits]\nmax_queued = 7\nmax_job_days = 8\n";
  Set("LENETD_MAX_JOB_DAYS", "9");
  Set("LENETD_PORT_FILE", "");
  Set("RUNTIME_DIRECTORY", "/run/x");
  const std::vector<const char*> arguments = {"lenetd",          "--config", file.c_str(), "--check-config",
                                              "--data-dir",      "/x y",     "--data-dir", "/z",
                                              "--drain-timeout", "0.5",      "--insecure"};
  ::testing::internal::CaptureStdout();
  const CommandLine line = ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_FALSE(line.config.has_value());
  EXPECT_EQ(line.exit_code, kExitOk);
  EXPECT_EQ(text, "# lenetd's configuration; its file: " + file +
                      "\n"
                      "listen = [\"unix:/run/x/lenetd.sock\"]  # default\n"
                      "port_file = \"\"  # default\n"
                      "tls_cert = \"\"  # default\n"
                      "tls_key = \"\"  # default\n"
                      "tls_client_ca = \"\"  # default\n"
                      "access_file = \"\"  # default\n"
                      "insecure = true  # --insecure\n"
                      "metrics_listen = \"127.0.0.1:25051\"  # default\n"
                      "state_dir = \"/a \\\"quoted\\\" \\\\ folder\"  # " +
                      file +
                      ":1\n"
                      "data_dir = [\"/x y\", \"/z\"]  # --data-dir\n"
                      "plugin_dir = \"\"  # default\n"
                      "backend = \"auto\"  # default\n"
                      "log_level = \"info\"  # default\n"
                      "\n[jobs]\n"
                      "drain_timeout = 0.5  # --drain-timeout\n"
                      "on_restart = \"resume\"  # default\n"
                      "collective_timeout = 60  # default\n"
                      "\n[limits]\n"
                      "max_queued = 7  # " +
                      file +
                      ":4\n"
                      "max_jobs_per_client = 0  # default\n"
                      "max_job_days = 9  # LENETD_MAX_JOB_DAYS\n"
                      "max_calls = 250  # default\n"
                      "max_calls_per_client = 100  # default\n"
                      "max_streams = 1000  # default\n"
                      "max_streams_per_client = 0  # default\n"
                      "max_connections = 500  # default\n"
                      "max_connections_per_client = 100  # default\n"
                      "max_resets_per_client = 1000  # default\n"
                      "max_calls_per_connection = 100  # default\n"
                      "max_request_bytes = 4259840  # default\n"
                      "max_idle_time = 900  # default\n");
}

}  // namespace
}  // namespace lenet
