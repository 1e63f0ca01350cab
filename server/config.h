// lenetd's configuration: its values, where they come from, and what the process ends with if they are bad.
#ifndef LENET_SERVER_CONFIG_H_
#define LENET_SERVER_CONFIG_H_

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/rpc/rpc_limits.h"
#include "server/rpc/tls.h"
#include "trainer/base/log.h"

namespace lenet {

inline constexpr char kNoMetrics[] = "off";
inline constexpr char kSharedRuntimeFolder[] = "/run/lenet";  // of the whole machine's lenetd

struct ServerConfig {
  std::vector<std::string> listen;               // see ListenAddress; empty: DefaultListen()
  TlsFiles tls;                                  // none: no encryption
  std::filesystem::path access_file;             // see AccessRules; empty: everyone is an admin
  bool insecure = false;                         // whether an address that others reach may do without
  std::vector<std::filesystem::path> data_dirs;  // where data sets are looked for, in order
  std::filesystem::path state_dir;               // jobs are in lenetd.db, their checkpoints in jobs/<id>/ below it
  std::string backend = "auto";                  // "auto", "cpu", "cuda"
  std::string plugin_dir;                        // empty: see PluginFolder
  LogLevel log_level = LogLevel::kInfo;
  std::chrono::milliseconds drain_timeout{30'000};
  bool running_jobs_go_on = true;  // those that ran when lenetd was killed; else they fail
  std::chrono::milliseconds collective_timeout{60'000};
  size_t max_queued = 1000;
  size_t max_jobs_per_client = 0;  // 0: no limit
  int max_job_days = 0;            // after its end; 0: no limit
  RpcLimits rpc;
  // host:port of the Prometheus endpoint, or kNoMetrics. The default is no port of Prometheus' own list, which is full,
  // nor one of those that Linux gives to outgoing connections.
  std::string metrics_listen = "127.0.0.1:25051";
  std::filesystem::path port_file;  // gets the addresses once the server serves, until it ends; empty: none

  absl::Duration max_job_age() const {
    return max_job_days == 0 ? absl::InfiniteDuration() : absl::Hours(24) * max_job_days;
  }
};

// How lenetd ends.
inline constexpr int kExitOk = 0;         // shut down in order
inline constexpr int kExitFailure = 1;    // anything without a code of its own
inline constexpr int kExitUsage = 2;      // a bad command line or configuration
inline constexpr int kExitBackend = 3;    // no usable backend, or its devices fail the warm-up
inline constexpr int kExitListen = 4;     // the address cannot be listened on
inline constexpr int kExitStuckJobs = 5;  // jobs did not end though aborted
inline constexpr int kExitState = 6;      // the state folder is in use, damaged, or cannot be written
inline constexpr int kExitUnusable = 7;   // shut down in order, as a device failed that only a new process can use

// Where state goes if nothing is said: $STATE_DIRECTORY (systemd), $XDG_STATE_HOME/lenetd, ~/.local/state/lenetd, or
// /var/lib/lenet.
std::filesystem::path DefaultStateDir();

// lenetd.sock in $RUNTIME_DIRECTORY (systemd), in /run/lenet for root, in $XDG_RUNTIME_DIR/lenet, or in
// DefaultStateDir().
std::string DefaultListen();

// /usr/share/datasets, /var/lib/lenet/datasets, and $XDG_DATA_HOME/lenet/datasets or ~/.local/share/lenet/datasets.
std::vector<std::filesystem::path> DefaultDataDirs();

inline constexpr char kDefaultConfigFile[] = "/etc/lenet/lenetd.toml";
inline constexpr char kConfigVariable[] = "LENETD_CONFIG";  // names another one

// What the configuration is made of.
struct ConfigSources {
  // Values of flags, by the key of the setting.
  std::map<std::string, std::vector<std::string>> flags;
  // The environment's variables that begin with LENETD_, but for LENETD_CONFIG. Empty ones count as not set.
  std::map<std::string, std::string> environment;
  std::filesystem::path file = kDefaultConfigFile;  // "/dev/null" for none
  bool file_may_lack = true;                        // it is no error if the file is not there
};

struct LoadedConfig {
  ServerConfig config;
  bool file_found = false;
  // By key, where the value comes from: "default", "FILE:LINE", the variable or the flag.
  std::map<std::string, std::string> origins;
  // All that is wrong, a line each: where, the setting, its value and the reason. Not empty: `config` is not to be
  // used.
  std::vector<std::string> errors;
};

// Flags go before the environment, that before the file, and that before the defaults. Reads the file.
LoadedConfig LoadConfig(const ConfigSources& sources);

// The whole configuration as a TOML file, each value with its origin as a comment.
std::string ConfigText(const ConfigSources& sources, const LoadedConfig& loaded);

}  // namespace lenet

#endif  // LENET_SERVER_CONFIG_H_
