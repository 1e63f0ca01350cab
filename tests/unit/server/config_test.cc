#include "server/config.h"

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/settings.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/server/environment_test.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

struct Example {
  std::string key;
  std::string file;  // a value that is not the default, as it stands in a file
  std::string one;   // the same as text
  std::string two;   // another one
};

std::vector<Example> Examples() {
  return {
      {"listen", "['unix:/a']", "unix:/a", "[::1]:7"},
      {"port_file", "'/a'", "/a", "/b"},
      {"tls_cert", "'/a'", "/a", "/b"},
      {"tls_key", "'/a'", "/a", "/b"},
      {"tls_client_ca", "'/a'", "/a", "/b"},
      {"access_file", "'/a'", "/a", "/b"},
      {"metrics_listen", "'[::1]:1'", "[::1]:1", "off"},
      {"insecure", "true", "true", "false"},
      {"state_dir", "'/a'", "/a", "/b"},
      {"data_dir", "['/a']", "/a", "/b c"},
      {"plugin_dir", "'/a'", "/a", "/b"},
      {"backend", "'cpu'", "cpu", "cuda"},
      {"log_level", "'error'", "error", "warning"},
      {"jobs.drain_timeout", "1.5", "1.5", "2"},
      {"jobs.on_restart", "'fail'", "fail", "resume"},
      {"jobs.collective_timeout", "0", "0", "0.001"},
      {"limits.max_queued", "1", "1", "1000000"},
      {"limits.max_jobs_per_client", "1", "1", "2"},
      {"limits.max_job_days", "1", "1", "36500"},
      {"limits.max_calls", "1", "1", "100000"},
      {"limits.max_calls_per_client", "0", "0", "1"},
      {"limits.max_streams", "1", "1", "100000"},
      {"limits.max_streams_per_client", "1", "1", "2"},
      {"limits.max_connections", "1", "1", "100000"},
      {"limits.max_connections_per_client", "0", "0", "1"},
      {"limits.max_resets_per_client", "0", "0", "1"},
      {"limits.max_calls_per_connection", "1", "1", "100000"},
      {"limits.max_request_bytes", "65536", "65536", "67108864"},
      {"limits.max_idle_time", "0", "0", "0.5"},
  };
}

class ConfigTest : public EnvironmentTest {
 protected:
  void Write(const std::string& text) {
    std::ofstream(file_) << text;
    sources_.file = file_;
  }

  std::string ValueOf(const std::string& key, const ServerConfig& config) {
    return FindSetting(key)->get(config).front();
  }

  // What is wrong with such a file; without the file's name.
  std::vector<std::string> ErrorsOf(const std::string& text) {
    Write(text);
    std::vector<std::string> errors = LoadConfig(sources_).errors;
    for (std::string& error : errors) error = absl::StrReplaceAll(error, {{file_ + ":", ""}});
    return errors;
  }

  TempFolder folder_;
  const std::string file_ = folder_.path() / "lenetd.toml";
  ConfigSources sources_ = {.file = "/dev/null"};
};

TEST_F(ConfigTest, FlagsGoBeforeTheEnvironmentBeforeTheFileBeforeTheDefault) {
  ASSERT_EQ(Examples().size(), Settings().size()) << "a new setting needs an example";
  for (const auto& [key, in_file, one, two] : Examples()) {
    const Setting* const setting = FindSetting(key);
    ASSERT_NE(setting, nullptr) << key;
    sources_ = {.file = "/dev/null"};
    LoadedConfig loaded = LoadConfig(sources_);
    EXPECT_THAT(loaded.errors, IsEmpty());
    EXPECT_EQ(loaded.origins[key], "default");
    EXPECT_NE(ValueOf(key, loaded.config), one) << key;

    Write(absl::StrCat("# a comment\n", key, " = ", in_file, "\n"));
    loaded = LoadConfig(sources_);
    EXPECT_THAT(loaded.errors, IsEmpty());
    EXPECT_EQ(loaded.origins[key], file_ + ":2");
    EXPECT_EQ(ValueOf(key, loaded.config), one);

    sources_.environment[setting->variable()] = two;
    loaded = LoadConfig(sources_);
    EXPECT_THAT(loaded.errors, IsEmpty());
    EXPECT_EQ(loaded.origins[key], setting->variable());
    EXPECT_EQ(ValueOf(key, loaded.config), two);

    sources_.flags[key] = {one};
    loaded = LoadConfig(sources_);
    EXPECT_THAT(loaded.errors, IsEmpty());
    EXPECT_EQ(loaded.origins[key], setting->flag());
    EXPECT_EQ(ValueOf(key, loaded.config), one);

    // An empty variable is none.
    sources_.flags.clear();
    sources_.environment[setting->variable()] = "";
    EXPECT_EQ(LoadConfig(sources_).origins[key], file_ + ":2");
  }
}

TEST_F(ConfigTest, NamesFollowFromTheKeyAndAreUnique) {
  const Setting* const setting = FindSetting("limits.max_queued");
  ASSERT_NE(setting, nullptr);
  EXPECT_EQ(setting->table(), "limits");
  EXPECT_EQ(setting->name(), "max_queued");
  EXPECT_EQ(setting->flag(), "--max-queued");
  EXPECT_EQ(setting->variable(), "LENETD_MAX_QUEUED");
  EXPECT_EQ(FindSetting("listen")->table(), "");
  EXPECT_EQ(FindSetting("max_queued"), nullptr);
  EXPECT_EQ(FindSetting("limits"), nullptr);

  std::set<std::string> names;
  std::vector<std::string> tables;
  for (const Setting& each : Settings()) {
    EXPECT_TRUE(names.insert(each.name()).second) << each.key;
    if (tables.empty() || tables.back() != each.table()) tables.push_back(each.table());
  }
  EXPECT_EQ(tables.front(), "");
  EXPECT_EQ(std::set(tables.begin(), tables.end()).size(), tables.size()) << "a table's settings stand together";
}

TEST_F(ConfigTest, CopyTakesOneSettingAndNoOther) {
  for (const auto& [key, in_file, one, two] : Examples()) sources_.flags[key] = {one};
  const ServerConfig from = LoadConfig(sources_).config;
  const ServerConfig defaults = LoadConfig({.file = "/dev/null"}).config;
  for (const Setting& setting : Settings()) {
    ServerConfig to = defaults;
    setting.copy(from, &to);
    for (const Setting& each : Settings()) {
      EXPECT_EQ(each.get(to), each.get(each.key == setting.key ? from : defaults)) << setting.key << " " << each.key;
    }
  }
}

TEST_F(ConfigTest, ListsFromEverySource) {
  Write("data_dir = [\"/a\", '/b:c']");
  EXPECT_THAT(LoadConfig(sources_).config.data_dirs, ElementsAre("/a", "/b:c"));
  Write("data_dir = '/a'");
  EXPECT_THAT(LoadConfig(sources_).config.data_dirs, ElementsAre("/a"));
  sources_.environment["LENETD_DATA_DIR"] = "/c:/d e";
  EXPECT_THAT(LoadConfig(sources_).config.data_dirs, ElementsAre("/c", "/d e"));
  sources_.flags["data_dir"] = {"/f", "/g:h"};
  EXPECT_THAT(LoadConfig(sources_).config.data_dirs, ElementsAre("/f", "/g:h"));
}

TEST_F(ConfigTest, BadValuesAreNamedWithTheirPlaceAndTheBound) {
  EXPECT_THAT(
      ErrorsOf("listen = 'foo'\n"
               "state_dir = \"\"\n"
               "log_level = \"lo\\\"ud\"\n"
               "[jobs]\n"
               "drain_timeout = nan\n"
               "  collective_timeout = -0.5\n"
               "[limits]\n"
               "max_queued = 0\n"
               "max_jobs_per_client = -1\n"
               "max_job_days = 99999999999\n"),
      ElementsAre("1:10: listen = \"foo\": \"foo\" is no address to listen on: it must be host:port or unix:path",
                  "2:13: state_dir = \"\": the path is empty",
                  "3:13: log_level = \"lo\\\"ud\": must be one of debug, info, warning, error",
                  "5:17: jobs.drain_timeout = nan: must be 0, or 0.001 to 86400 seconds",
                  "6:24: jobs.collective_timeout = -0.5: must be 0, or 0.001 to 86400 seconds",
                  "8:14: limits.max_queued = 0: must be 1 to 1000000",
                  "9:23: limits.max_jobs_per_client = -1: must be 0 to 1000000",
                  "10:16: limits.max_job_days = 99999999999: must be 0 to 36500"));
  for (const char* bad : {"unix:/run/metrics", "9464", "localhost:65536", "127.0.0.1:1,127.0.0.1:2", "on", ""}) {
    EXPECT_THAT(ErrorsOf("metrics_listen = '" + std::string(bad) + "'"),
                ElementsAre(::testing::AllOf(StartsWith("1:18: metrics_listen"), HasSubstr(bad))));
  }
  EXPECT_THAT(ErrorsOf("data_dir = []"), ElementsAre("1:12: data_dir: must be at least one path"));
  EXPECT_THAT(ErrorsOf("data_dir = ['/a', '']"), ElementsAre("1:12: data_dir: the path is empty"));
  EXPECT_THAT(ErrorsOf("state_dir = \"/a\\u0000b\""),
              ElementsAre("1:13: state_dir = \"/a\\u0000b\": must be without NUL characters"));
  // A long value leaves room for the reason.
  EXPECT_THAT(ErrorsOf("backend = '" + std::string(5000, 'x') + "'"),
              ElementsAre(MatchesRegex("1:11: backend = \"x+.*: must be one of auto, cpu, cuda")));
}

TEST_F(ConfigTest, WrongTypesAreNamed) {
  EXPECT_THAT(
      ErrorsOf("listen = 50051\n"
               "state_dir = ['/a']\n"
               "data_dir = ['/a', 3]\n"
               "plugin_dir = 2020-01-01\n"
               "log_level = true\n"
               "insecure = 'true'\n"
               "[backend]\n"
               "[jobs]\n"
               "drain_timeout = '30'\n"
               "[limits]\n"
               "max_queued = 1.5\n"),
      ElementsAre("1:10: listen = 50051: must be an array of strings, not an integer",
                  "2:13: state_dir: must be a string, not an array",
                  "3:19: data_dir = 3: must be a string, not an integer",
                  "4:14: plugin_dir: must be a string, not a date or time",
                  "5:13: log_level = true: must be a string (debug, info, warning, error), not a boolean",
                  "6:12: insecure = \"true\": must be a boolean (true, false), not a string",
                  "7:1: backend: must be a string (auto, cpu, cuda), not a table",
                  "9:17: jobs.drain_timeout = \"30\": must be a number (0, or 0.001 to 86400 seconds), not a string",
                  "11:14: limits.max_queued = 1.5: must be an integer (1 to 1000000), not a float"));
  EXPECT_THAT(ErrorsOf("limits = 3"), ElementsAre("1:10: limits = 3: must be a table, not an integer"));
  EXPECT_THAT(ErrorsOf("[limits]\n"), IsEmpty());
}

TEST_F(ConfigTest, UnknownKeysComeWithTheNearest) {
  EXPECT_THAT(ErrorsOf("listn = 'x'\n"
                       "max_queued = 5\n"
                       "log-level = 'info'\n"
                       "colour = 1\n"
                       "[limts]\n"
                       "max_job_days = 3\n"
                       "[limits]\n"
                       "max_jobs_per_clinet = 3\n"
                       "\"max.queued\" = 3\n"
                       "[logging]\n"
                       "[listen]\n"
                       "port = 5\n"),
              ElementsAre("1:1: listn: there is no such setting; did you mean listen?",
                          "2:1: max_queued: there is no such setting; did you mean limits.max_queued?",
                          "3:1: log-level: there is no such setting; did you mean log_level?",
                          "4:1: colour: there is no such setting",
                          "6:1: limts.max_job_days: there is no such setting; did you mean limits.max_job_days?",
                          "8:1: limits.max_jobs_per_clinet: there is no such setting; did you mean "
                          "limits.max_jobs_per_client?",
                          "9:1: limits.\"max.queued\": there is no such setting; did you mean limits.max_queued?",
                          "10:2: logging: there is no such setting", "12:1: listen.port: there is no such setting"));
}

TEST_F(ConfigTest, SyntaxErrorsHaveTheirPlace) {
  EXPECT_THAT(ErrorsOf("listen = 'a:1'\nbackend == 'cpu'\n"), ElementsAre(StartsWith("2:10: ")));
  EXPECT_THAT(ErrorsOf("backend = 'cpu'\nbackend = 'cuda'\n"), ElementsAre(HasSubstr("redefine")));
}

TEST_F(ConfigTest, TheEnvironmentsErrors) {
  sources_.environment = {{"LENETD_MAX_QUEUED", "many"}, {"LENETD_MAX_QUEUE", "hidden"},
                          {"LENETD_CONFG", "hidden"},    {"LENETD_SECRET_OF_ANOTHER", "hidden"},
                          {"LENETD_INSECURE", "1"},      {"LENETD_DATA_DIR", "/a::/b"}};
  EXPECT_THAT(LoadConfig(sources_).errors,
              ElementsAre("LENETD_CONFG: there is no such setting; did you mean LENETD_CONFIG?",
                          "LENETD_DATA_DIR = \"/a::/b\": the path is empty",
                          "LENETD_INSECURE = \"1\": must be one of true, false",
                          "LENETD_MAX_QUEUE: there is no such setting; did you mean LENETD_MAX_QUEUED?",
                          "LENETD_MAX_QUEUED = \"many\": must be 1 to 1000000",
                          "LENETD_SECRET_OF_ANOTHER: there is no such setting"));
}

TEST_F(ConfigTest, ErrorsOfAllSourcesAreTold) {
  Write("backend = 'tpu'");
  sources_.environment["LENETD_BACKEND"] = "npu";
  sources_.flags["backend"] = {"abacus"};
  // The file's is wrong though a flag goes before it.
  EXPECT_THAT(LoadConfig(sources_).errors,
              ElementsAre(file_ + ":1:11: backend = \"tpu\": must be one of auto, cpu, cuda",
                          "LENETD_BACKEND = \"npu\": must be one of auto, cpu, cuda",
                          "--backend = \"abacus\": must be one of auto, cpu, cuda"));
}

TEST_F(ConfigTest, AnEmptyFlagDoesNotTurnOffWhatTheFileTurnsOn) {
  Write("tls_client_ca = '/roots.pem'");
  sources_.flags["tls_client_ca"] = {""};
  EXPECT_THAT(LoadConfig(sources_).errors, ElementsAre("--tls-client-ca = \"\": the value is empty"));
}

TEST_F(ConfigTest, AFileMayLackIfItIsAllowedTo) {
  sources_.file = file_;
  EXPECT_THAT(LoadConfig(sources_).errors, IsEmpty());
  EXPECT_FALSE(LoadConfig(sources_).file_found);
  sources_.file_may_lack = false;
  EXPECT_THAT(LoadConfig(sources_).errors, ElementsAre(HasSubstr("'" + file_ + "': No such file or directory")));
  sources_.file = folder_.path();
  EXPECT_THAT(LoadConfig(sources_).errors, ElementsAre(HasSubstr("is not a regular file")));
  Write(std::string((1 << 20) + 1, '#'));
  EXPECT_THAT(LoadConfig(sources_).errors, ElementsAre(HasSubstr(file_)));
}

TEST_F(ConfigTest, TheTextIsAFileWithTheSameValues) {
  for (const auto& [key, in_file, one, two] : Examples()) sources_.flags[key] = {two};
  sources_.flags["state_dir"] = {"/a \"b\" 'c' \\d\n\te \x7f é # ="};
  sources_.flags["data_dir"] = {"/a, \"b\"", "/c]"};
  const LoadedConfig first = LoadConfig(sources_);
  ASSERT_THAT(first.errors, IsEmpty());
  Write(ConfigText(sources_, first));
  const LoadedConfig second = LoadConfig({.file = file_});
  EXPECT_THAT(second.errors, IsEmpty());
  for (const Setting& setting : Settings()) {
    EXPECT_EQ(setting.get(second.config), setting.get(first.config)) << setting.key;
    EXPECT_THAT(second.origins.at(setting.key), StartsWith(file_ + ":")) << setting.key;
  }
}

TEST_F(ConfigTest, AnOriginStaysOnItsLine) {
  sources_.file = folder_.path() / "a\nlisten = 'b:1'";
  std::ofstream(sources_.file) << "backend = 'cpu'\n";
  const LoadedConfig loaded = LoadConfig(sources_);
  Write(ConfigText(sources_, loaded));
  EXPECT_THAT(FindSetting("listen")->get(LoadConfig(sources_).config), ElementsAre(DefaultListen()));
}

TEST_F(ConfigTest, AddressesMayBeSeveral) {
  Write("listen = ['unix:/a', '[::1]:7']\n");
  EXPECT_THAT(LoadConfig(sources_).config.listen, ElementsAre("unix:/a", "[::1]:7"));
  Write("listen = 'a:1'\n");
  EXPECT_THAT(LoadConfig(sources_).config.listen, ElementsAre("a:1"));
  sources_.environment["LENETD_LISTEN"] = "unix:/b,c:2";
  EXPECT_THAT(LoadConfig(sources_).config.listen, ElementsAre("unix:/b", "c:2"));
  EXPECT_THAT(ErrorsOf("listen = []"), ElementsAre("1:10: listen: must be at least one address"));
  Write("");
  sources_.environment["LENETD_LISTEN"] = "unix:/b,";
  EXPECT_THAT(LoadConfig(sources_).errors, ElementsAre(HasSubstr("LENETD_LISTEN = \"unix:/b,\"")));
}

TEST_F(ConfigTest, TheExampleFileHasEveryDefault) {
  std::ifstream example(LENET_EXAMPLE_CONFIG);
  std::string text;
  for (std::string line; std::getline(example, line);) {
    // "#key" is a value, "# word" a comment.
    if (line.size() > 1 && line[0] == '#' && line[1] != ' ') line.erase(0, 1);
    text += line + "\n";
  }
  Write(text);
  Set("RUNTIME_DIRECTORY", "/run/lenet");
  const LoadedConfig loaded = LoadConfig(sources_);
  EXPECT_THAT(loaded.errors, IsEmpty());
  const LoadedConfig defaults = LoadConfig({.file = "/dev/null"});
  for (const Setting& setting : Settings()) {
    EXPECT_THAT(loaded.origins.at(setting.key), StartsWith(file_ + ":")) << setting.key << " is missing";
    EXPECT_EQ(TomlOf(setting, loaded.config), TomlOf(setting, defaults.config));
  }

  sources_.file = LENET_EXAMPLE_CONFIG;
  const LoadedConfig unchanged = LoadConfig(sources_);
  EXPECT_THAT(unchanged.errors, IsEmpty());
  EXPECT_TRUE(unchanged.file_found);
  for (const auto& [key, origin] : unchanged.origins) EXPECT_EQ(origin, "default") << key;
}

}  // namespace
}  // namespace lenet
