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
    "Other commands: lenetd selftest checks libraries, devices and the machine; lenetd token makes a\n"
    "token for --access-file. Each has a --help.\n"
    "Exit codes: 0 shut down in order; 1 failure; 2 bad command line; 3 no usable backend;\n"
    "4 cannot listen; 5 jobs did not end though aborted; 6 state folder in use, damaged or\n"
    "not writable; 7 a device failed that only a new process can use. SIGTERM, SIGINT (Ctrl-C) and SIGHUP\n"
    "shut down in order: running jobs save their state and go on when lenetd is back; at a second one\n"
    "they go on from their last checkpoint.";

constexpr double kMinSeconds = 0.001;  // the least that does not become 0
constexpr double kMaxSeconds = 86400;
constexpr int kMaxDays = 36500;
constexpr size_t kMaxJobs = 1'000'000;

// Empty if not set.
std::string Environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing sets variables
  return value == nullptr ? "" : value;
}

// Validators of CLI11: each gives what is wrong, or nothing.
std::string CheckListen(const std::string& text) { return std::string(ParseListenAddress(text).status().message()); }

std::string CheckMetricsListen(const std::string& text) {
  if (text.empty() || text == "off") return "";
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(text);
  if (!address.ok()) return std::string(address.status().message());
  return address->unix_path.empty() ? "" : absl::StrCat("\"", text, "\" must be host:port, or \"off\"");
}

std::string CheckNotEmpty(const std::string& text) { return text.empty() ? "the path is empty" : ""; }

std::string CheckSeconds(const std::string& text) {
  double seconds = 0;
  // A NaN is outside, too.
  const bool inside =
      absl::SimpleAtod(text, &seconds) && (seconds == 0 || (seconds >= kMinSeconds && seconds <= kMaxSeconds));
  return inside ? "" : absl::StrCat("\"", text, "\" must be 0, or ", kMinSeconds, " to ", kMaxSeconds, " seconds");
}

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
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
  // No port of Prometheus' own list, which is full, nor one of those that Linux gives to outgoing connections.
  config.metrics_listen = "127.0.0.1:25051";
  double drain_seconds = 30;
  double collective_seconds = 60;
  std::string on_restart = "resume";
  int max_job_days = 0;
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
  app.add_option("--tls-cert", config.tls.certificate, "PEM file of the server's certificate; turns TLS on")
      ->check(CheckNotEmpty);
  app.add_option("--tls-key", config.tls.key, "PEM file of its private key")->check(CheckNotEmpty);
  app.add_option("--tls-client-ca", config.tls.client_ca,
                 "PEM file of the roots of clients' certificates; clients without one are turned away")
      ->check(CheckNotEmpty);
  app.add_option("--access-file", config.access_file,
                 "File of rules that give clients their roles, see lenetd token; without: all who connect may do all")
      ->check(CheckNotEmpty);
  app.add_flag("--insecure", config.insecure,
               "Serve without TLS where other machines reach the address: they can start and stop jobs");
  app.add_option("--data-dir", config.data_dirs,
                 "Folder of data sets; may be given more than once, and replaces the defaults")
      ->allow_extra_args(false)
      ->check(CheckNotEmpty);
  app.add_option("--state-dir", config.state_dir,
                 "Folder for jobs, their metrics and their checkpoints; one lenetd at a time")
      ->check(CheckNotEmpty);
  app.add_option("--backend", config.backend, "Devices to train on; auto takes GPUs if there are any")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--plugin-dir", config.plugin_dir, "Folder of the backends' libraries");
  app.add_option("--log-level", log_level, "Least severe lines to log")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  app.add_option("--drain-timeout", drain_seconds, "Seconds that running jobs get to stop at shutdown")
      ->check(CheckSeconds);
  app.add_option(
         "--on-restart", on_restart,
         "What becomes of jobs that ran when lenetd was killed, not shut down: resume them from their last checkpoint, "
         "or fail them")
      ->check(CLI::IsMember({"resume", "fail"}));
  app.add_option("--collective-timeout", collective_seconds,
                 "Seconds that ranks may stand still in a collective before the job fails; 0: for ever")
      ->check(CheckSeconds);
  app.add_option("--max-queued", config.max_queued, "Jobs that may wait, paused ones among them")
      ->check(CLI::Range(size_t{1}, kMaxJobs));
  app.add_option("--max-jobs-per-client", config.max_jobs_per_client,
                 "Jobs that have not ended that one client address may have; 0: no limit")
      ->check(CLI::Range(size_t{0}, kMaxJobs));
  app.add_option("--max-job-days", max_job_days, "Days after which an ended job is forgotten; 0: never by its age")
      ->check(CLI::Range(0, kMaxDays));
  app.add_option("--metrics-listen", config.metrics_listen,
                 "Address that serves /metrics to Prometheus, host:port; \"off\": none")
      ->check(CheckMetricsListen);
  app.add_option("--port-file", config.port_file,
                 "File to write the address to once the server serves; goes when the server does");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return {.exit_code = app.exit(error) == 0 ? kExitOk : kExitUsage};
  }
  if (config.metrics_listen == "off") config.metrics_listen.clear();
  config.log_level = levels.at(log_level);
  config.drain_timeout = Milliseconds(drain_seconds);
  config.running_jobs_go_on = on_restart == "resume";
  config.collective_timeout = Milliseconds(collective_seconds);
  if (max_job_days > 0) config.max_job_age = absl::Hours(24) * max_job_days;
  return {.config = std::move(config)};
}

}  // namespace lenet
