#include "server/config.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/listener.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;

constexpr char kExitCodes[] =
    "Exit codes: 0 shut down in order; 1 failure; 2 bad command line; 3 no usable backend;\n"
    "4 cannot listen; 5 jobs did not end at shutdown. SIGTERM, SIGINT and SIGHUP shut down in order:\n"
    "running jobs save a checkpoint and stop; a second one aborts them.";

constexpr double kMaxDrainSeconds = 86400;

// Empty if not set.
std::string Environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing sets variables
  return value == nullptr ? "" : value;
}

// Validators of CLI11: each gives what is wrong, or nothing.
std::string CheckListen(const std::string& text) { return std::string(ParseListenAddress(text).status().message()); }

std::string CheckNotEmpty(const std::string& text) { return text.empty() ? "the path is empty" : ""; }

std::string CheckDrainTimeout(const std::string& text) {
  double seconds = 0;
  // A NaN is outside, too.
  const bool inside = absl::SimpleAtod(text, &seconds) && seconds >= 0 && seconds <= kMaxDrainSeconds;
  return inside ? "" : absl::StrCat("\"", text, "\" must be 0 to ", kMaxDrainSeconds, " seconds");
}

}  // namespace

fs::path DefaultStateDir() {
  if (const std::string systemd = Environment("STATE_DIRECTORY"); !systemd.empty()) {
    return systemd.substr(0, systemd.find(':'));
  }
  if (const std::string xdg = Environment("XDG_STATE_HOME"); !xdg.empty()) return fs::path(xdg) / "lenetd";
  if (const std::string home = Environment("HOME"); !home.empty()) return fs::path(home) / ".local/state/lenetd";
  return "/var/lib/lenet";
}

std::vector<fs::path> DefaultDataDirs() {
  std::vector<fs::path> dirs = {"/usr/share/datasets", "/var/lib/lenet/datasets"};
  if (const std::string xdg = Environment("XDG_DATA_HOME"); !xdg.empty()) {
    dirs.push_back(fs::path(xdg) / "lenet/datasets");
  } else if (const std::string home = Environment("HOME"); !home.empty()) {
    dirs.push_back(fs::path(home) / ".local/share/lenet/datasets");
  }
  return dirs;
}

CommandLine ParseCommandLine(int argc, const char* const* argv) {
  ServerConfig config = {
      .listen = "127.0.0.1:50051", .data_dirs = DefaultDataDirs(), .state_dir = DefaultStateDir(), .backend = "auto"};
  double drain_seconds = 30;
  std::string log_level = "info";
  const std::map<std::string, LogLevel> levels = {{"debug", LogLevel::kDebug},
                                                  {"info", LogLevel::kInfo},
                                                  {"warning", LogLevel::kWarning},
                                                  {"error", LogLevel::kError}};

  CLI::App app("lenetd trains LeNet-type networks on this machine's GPUs or CPU cores for clients over gRPC.");
  app.set_version_flag("--version", std::string("lenetd ") + LENET_VERSION);
  app.footer(kExitCodes);
  app.option_defaults()->always_capture_default();
  app.add_option("--listen", config.listen, "Address to serve on, host:port or unix:path; port 0 takes any free one")
      ->check(CheckListen);
  app.add_option("--data-dir", config.data_dirs, "Folder of data sets; may be given more than once")
      ->allow_extra_args(false)
      ->check(CheckNotEmpty);
  app.add_option("--state-dir", config.state_dir, "Folder for checkpoints, which go to jobs/<id>/ below it")
      ->check(CheckNotEmpty);
  app.add_option("--backend", config.backend, "Devices to train on; auto takes GPUs if there are any")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--plugin-dir", config.plugin_dir, "Folder of the backends' libraries");
  app.add_option("--log-level", log_level, "Least severe lines to log")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  app.add_option("--drain-timeout", drain_seconds, "Seconds that running jobs get to stop at shutdown")
      ->check(CheckDrainTimeout);
  app.add_option("--port-file", config.port_file,
                 "File to write the address to once the server serves; goes when the server does");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return {.exit_code = app.exit(error) == 0 ? kExitOk : kExitUsage};
  }
  config.log_level = levels.at(log_level);
  config.drain_timeout = std::chrono::milliseconds(static_cast<int64_t>(drain_seconds * 1000));
  return {.config = std::move(config)};
}

}  // namespace lenet
