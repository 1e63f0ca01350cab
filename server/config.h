// lenetd's command line.
#ifndef LENET_SERVER_CONFIG_H_
#define LENET_SERVER_CONFIG_H_

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/rpc/tls.h"
#include "trainer/base/log.h"

namespace lenet {

struct ServerConfig {
  std::string listen;                            // see ListenAddress
  TlsFiles tls;                                  // none: no encryption
  std::filesystem::path access_file;             // see AccessRules; empty: everyone is an admin
  bool insecure = false;                         // whether an address that others reach may do without
  std::vector<std::filesystem::path> data_dirs;  // where data sets are looked for, in order
  std::filesystem::path state_dir;               // jobs are in lenetd.db, their checkpoints in jobs/<id>/ below it
  std::string backend;                           // "auto", "cpu", "cuda"
  std::string plugin_dir;                        // empty: see PluginFolder
  LogLevel log_level = LogLevel::kInfo;
  std::chrono::milliseconds drain_timeout{0};
  bool running_jobs_go_on = true;  // those that ran when lenetd was killed; else they fail
  std::chrono::milliseconds collective_timeout{60'000};
  size_t max_queued = 1000;
  size_t max_jobs_per_client = 0;                         // 0: no limit
  absl::Duration max_job_age = absl::InfiniteDuration();  // after its end
  std::string metrics_listen;                             // host:port of the Prometheus endpoint; empty: none
  std::filesystem::path port_file;  // gets the address once the server serves, until it ends; empty: none
};

// How lenetd ends.
inline constexpr int kExitOk = 0;         // shut down in order
inline constexpr int kExitFailure = 1;    // anything without a code of its own
inline constexpr int kExitUsage = 2;      // a bad command line
inline constexpr int kExitBackend = 3;    // no usable backend, or its devices fail the warm-up
inline constexpr int kExitListen = 4;     // the address cannot be listened on
inline constexpr int kExitStuckJobs = 5;  // jobs did not end though aborted
inline constexpr int kExitState = 6;      // the state folder is in use, damaged, or cannot be written
inline constexpr int kExitUnusable = 7;   // shut down in order, as a device failed that only a new process can use

struct CommandLine {
  std::optional<ServerConfig> config;  // not set: the program ends now
  int exit_code = kExitOk;
};

// Reads the command line and the environment variables that defaults come from. Prints help, the version, or what is
// wrong.
CommandLine ParseCommandLine(int argc, const char* const* argv);

// Where state goes if nothing is said: $STATE_DIRECTORY (systemd), $XDG_STATE_HOME/lenetd, ~/.local/state/lenetd, or
// /var/lib/lenet.
std::filesystem::path DefaultStateDir();

// /usr/share/datasets, /var/lib/lenet/datasets, and $XDG_DATA_HOME/lenet/datasets or ~/.local/share/lenet/datasets.
std::vector<std::filesystem::path> DefaultDataDirs();

}  // namespace lenet

#endif  // LENET_SERVER_CONFIG_H_
