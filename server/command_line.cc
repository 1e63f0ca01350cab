#include "server/command_line.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "server/settings.h"

namespace lenet {
namespace {

constexpr char kFooter[] =
    "Each setting may also stand in the configuration file, under its name with _ for -, or in a variable of\n"
    "the environment, as in LENETD_MAX_QUEUED (folders with : between, addresses with ,). Flags go before\n"
    "variables, these before the file. SIGHUP reads the file again.\n\n"
    "Other commands: lenetd selftest checks libraries, devices and the machine; lenetd token makes a\n"
    "token for --access-file. Each has a --help.\n"
    "Exit codes: 0 shut down in order; 1 failure; 2 bad command line or configuration; 3 no usable backend;\n"
    "4 cannot listen; 5 jobs did not end though aborted; 6 state folder in use, damaged or\n"
    "not writable; 7 a device failed that only a new process can use. SIGTERM and SIGINT (Ctrl-C)\n"
    "shut down in order: running jobs save their state and go on when lenetd is back; at a second one\n"
    "they go on from their last checkpoint.";

// The variables that are lenetd's.
std::map<std::string, std::string> OwnEnvironment() {
  std::map<std::string, std::string> own;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const absl::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == absl::string_view::npos || !absl::StartsWith(text, kVariablePrefix)) continue;
    own.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return own;
}

CLI::Option* AddSetting(const Setting& setting, const ServerConfig& defaults, CLI::App* app) {
  if (setting.type == SettingType::kBoolean) return app->add_flag(setting.flag(), setting.help);
  CLI::Option* const option = app->add_option(setting.flag());
  option->description(setting.accepts.empty() ? setting.help : absl::StrCat(setting.help, " (", setting.accepts, ")"))
      ->type_name(setting.type == SettingType::kInteger  ? "INT"
                  : setting.type == SettingType::kNumber ? "FLOAT"
                                                         : "TEXT")
      ->default_str(absl::StrJoin(setting.get(defaults), ", "))
      ->expected(1);
  if (setting.type == SettingType::kList) option->take_all()->allow_extra_args(false);
  return option;
}

}  // namespace

CommandLine ParseCommandLine(int argc, const char* const* argv) {
  CommandLine line;
  CLI::App app("lenetd trains LeNet-type networks on this machine's GPUs or CPU cores for clients over gRPC.");
  app.set_version_flag("--version", std::string("lenetd ") + LENET_VERSION);
  app.footer(kFooter);
  std::string file;
  CLI::Option* const config = app.add_option(
      "--config", file, absl::StrCat("Configuration file, in TOML; /dev/null for none (or ", kConfigVariable, ")"));
  config->default_str(absl::StrCat(kDefaultConfigFile, ", if it is there"));
  bool check = false;
  app.add_flag("--check-config", check,
               "Print every setting with the place that it comes from, or all that is wrong, and end");
  const ServerConfig defaults = LoadConfig({.file = "/dev/null"}).config;
  std::vector<std::pair<std::string, CLI::Option*>> options;
  for (const Setting& setting : Settings()) options.emplace_back(setting.key, AddSetting(setting, defaults, &app));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    line.exit_code = app.exit(error) == 0 ? kExitOk : kExitUsage;
    return line;
  }
  for (const auto& [key, option] : options) {
    if (option->count() > 0) line.sources.flags[key] = option->results();
  }
  line.sources.environment = OwnEnvironment();
  const std::string variable = line.sources.environment[kConfigVariable];
  line.sources.environment.erase(kConfigVariable);
  if (config->count() > 0 || !variable.empty()) {
    line.sources.file = config->count() > 0 ? file : variable;
    line.sources.file_may_lack = false;
  }
  LoadedConfig loaded = LoadConfig(line.sources);
  if (!loaded.errors.empty()) {
    std::cerr << absl::StrJoin(loaded.errors, "\n") << "\nRun with --help for more information.\n";
    line.exit_code = kExitUsage;
    return line;
  }
  line.file_found = loaded.file_found;
  if (check) {
    std::cout << ConfigText(line.sources, loaded) << std::flush;
  } else {
    line.config = std::move(loaded.config);
  }
  return line;
}

}  // namespace lenet
