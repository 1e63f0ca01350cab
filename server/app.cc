#include "server/app.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "server/job/job_manager.h"
#include "server/logging.h"
#include "server/memory_return.h"
#include "server/monitoring/exporter.h"
#include "server/monitoring/gpu_monitor.h"
#include "server/progress_watch.h"
#include "server/rpc/access.h"
#include "server/rpc/listener.h"
#include "server/rpc/rpc_server.h"
#include "server/service_manager.h"
#include "server/serving_addresses.h"
#include "server/store/counting_store.h"
#include "server/store/sqlite_store.h"
#include "server/store/state_folder.h"
#include "server/supervision.h"
#include "trainer/backend/plugin.h"
#include "trainer/base/descriptor.h"
#include "trainer/base/file.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"
#include "trainer/data/catalog.h"

namespace lenet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollInterval(50);
// How long aborted jobs get to end.
constexpr std::chrono::seconds kAbortTimeout(15);
// How long clients get to read what is left of their streams.
constexpr std::chrono::seconds kStreamTimeout(5);
// Then the database is closed.
constexpr std::chrono::seconds kCloseTimeout(10);
// How often jobs are looked for that ended too long ago.
constexpr std::chrono::minutes kForgetInterval(1);
constexpr std::chrono::seconds kMemoryInterval(5);
// How long the service manager is asked to wait: several GPUs may take a minute to set up.
constexpr std::chrono::minutes kLongestWarmUp(10);

int Report(int exit_code, const absl::Status& status) {
  Log(LogLevel::kError, status.message());
  return exit_code;
}

// The state folder cannot be used.
int ReportState(const std::filesystem::path& folder, absl::Status status) {
  if (absl::IsDataLoss(status)) {
    status = absl::DataLossError(absl::StrCat(status.message(), "; put a backup in the place of '", folder.string(),
                                              "', or move what is in it away to start over"));
  }
  return Report(kExitState, Annotate(status, "--state-dir"));
}

void LogBackend(const SelectedBackend& selected) {
  const std::span<const DeviceInfo> devices = selected.backend->devices();
  std::string line = absl::StrCat("backend ", selected.backend->name(), ": ", devices.size(), " x ",
                                  devices.empty() ? "" : devices.front().name);
  if (!selected.reason.empty()) absl::StrAppend(&line, "; no GPU: ", selected.reason);
  Log(LogLevel::kInfo, line);
}

void LogDatasets(const std::vector<std::filesystem::path>& folders, const DatasetCatalog& catalog) {
  std::vector<std::string> names;
  for (const DatasetInfo& info : catalog.List()) names.push_back(info.valid ? info.name : info.name + " (not usable)");
  const std::string looked_in = absl::StrJoin(
      folders, ", ", [](std::string* out, const std::filesystem::path& folder) { out->append(folder.string()); });
  if (names.empty()) {
    Log(LogLevel::kWarning, absl::StrCat("no data set lies below ", looked_in));
  } else {
    Log(LogLevel::kInfo, absl::StrCat("data sets: ", absl::StrJoin(names, ", "), "; looked in ", looked_in));
  }
}

// Warns of addresses that others reach, where nothing is asked of them.
void WarnOfOpenAddresses(const ServerConfig& config, const std::vector<std::string>& addresses) {
  if (!config.tls.client_ca.empty() || !config.access_file.empty()) return;
  for (const std::string& address : addresses) {
    if (IsLocalAddress(address)) continue;
    Log(LogLevel::kWarning, absl::StrCat("listening on ", address, config.tls.any() ? "" : " without TLS",
                                         ": whoever reaches it can start and stop jobs"));
  }
}

// On an error the rules that hold stay.
void ReloadAccess(const std::filesystem::path& file, Access* access) {
  const absl::Status loaded = access->Load(file);
  if (loaded.ok()) {
    Log(LogLevel::kInfo, absl::StrCat("access rules of '", file.string(), "' read again"));
  } else {
    Log(LogLevel::kError, absl::StrCat("--access-file: the rules stay as they were: ", loaded.message()));
  }
}

// An earlier one may be there; a device, a pipe or a link would be replaced.
absl::Status CheckPortFile(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::symlink_status(path, error);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("--port-file: '", path.string(), "' is not a regular file"));
}

// An address a line. TCP comes first, for those who read one line.
std::string PortFileText(std::vector<std::string> addresses) {
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const std::string& address) { return !absl::StartsWith(address, "unix:"); });
  return absl::StrCat(absl::StrJoin(addresses, "\n"), "\n");
}

absl::Status WritePortFile(const std::filesystem::path& path, const std::string& text) {
  if (path.empty()) return absl::OkStatus();
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  return Annotate(WriteFileAtomic(path, std::span(&bytes, 1)), "--port-file");
}

// Unless it is another server's by now.
void RemovePortFile(const std::filesystem::path& path, const std::string& text) {
  const absl::StatusOr<std::string> content = ReadFile(path, static_cast<int64_t>(text.size()));
  std::error_code ignored;
  if (content.ok() && *content == text) std::filesystem::remove(path, ignored);
}

void ForgetOldJobs(JobStore* store) {
  const absl::Status status = store->ForgetOld(absl::Now());
  if (!status.ok()) Log(LogLevel::kWarning, absl::StrCat("old jobs cannot be forgotten: ", status.ToString()));
}

// What no opening of the database can tell, as it looks like a loss of power: the newest changes are gone.
void WarnOfLostJobs(const JobStore& store, const std::filesystem::path& state_dir) {
  std::vector<std::string> lost;
  for (std::string& id : JobsWithFolder(state_dir)) {
    if (absl::IsNotFound(store.GetJob(id).status())) lost.push_back(std::move(id));
  }
  if (lost.empty()) return;
  Log(LogLevel::kWarning, absl::StrCat("'", JobsFolder(state_dir).string(), "' has folders of ", lost.size(),
                                       " jobs that the database does not know, ", lost.front(),
                                       " among them: they may be all that is left of these"));
}

JobLimits LimitsOf(const ServerConfig& config) {
  return {.max_queued = config.max_queued, .max_jobs_per_client = config.max_jobs_per_client};
}

void RemoveJobFolder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error) Log(LogLevel::kWarning, absl::StrCat("'", folder.string(), "' cannot be removed: ", error.message()));
}

// What the watchdog asks. Not the jobs, which have timeouts of their own. The store first: others wait for it.
std::vector<ProgressWatch::Part> WatchedParts(SqliteStore* store, JobManager* manager, RpcServer* server) {
  return {{"the store",
           [store](Clock::time_point) {
             store->AwaitAnswers();
             return true;
           }},
          {"the scheduler",
           [manager](Clock::time_point) {
             manager->AwaitScheduler();
             return true;
           }},
          {"the metrics thread", [manager](Clock::time_point deadline) { return manager->MetricsRespond(deadline); }},
          {"the accept thread", [server](Clock::time_point deadline) { return server->AcceptResponds(deadline); }},
          {"the executor", [server](Clock::time_point deadline) { return server->ExecutorResponds(deadline); }},
          {"the streams thread", [server](Clock::time_point deadline) { return server->StreamsRespond(deadline); }},
          {"gRPC", [server](Clock::time_point deadline) { return server->CallsRespond(deadline); }}};
}

std::string Count(int64_t number, absl::string_view what) {
  return absl::StrCat(number, " ", what, number == 1 ? "" : "s");
}

std::string ServingStatus(const JobManager& manager, absl::string_view addresses) {
  const ServerLoad load = manager.Load();
  const int64_t failed = std::count_if(load.devices.begin(), load.devices.end(),
                                       [](const DevicePool::Device& device) { return !device.unhealthy.empty(); });
  std::string status = absl::StrCat("serving on ", addresses, "; ", load.running, " running, ", load.queued, " queued");
  if (failed > 0) absl::StrAppend(&status, "; ", failed, " of ", Count(std::ssize(load.devices), "device"), " failed");
  return status;
}

std::string DrainingStatus(const JobManager& manager) {
  const int running = manager.Load().running;
  return running > 0 ? absl::StrCat("draining ", Count(running, "job")) : "ending streams";
}

// Null on a backend that uses no GPUs, or without NVML.
std::unique_ptr<GpuMonitor> WatchGpus(const Backend& backend) {
  if (backend.name() != "cuda") return nullptr;
  absl::StatusOr<std::unique_ptr<GpuMonitor>> monitor = GpuMonitor::Start();
  if (monitor.ok()) return *std::move(monitor);
  Log(LogLevel::kWarning, absl::StrCat("the GPUs' sensors cannot be read: ", monitor.status().message()));
  return nullptr;
}

// Null if none is wanted.
absl::StatusOr<std::unique_ptr<Exporter>> StartExporter(const std::string& listen, MonitorSources sources) {
  if (listen == kNoMetrics) return nullptr;
  LENET_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(listen));
  LENET_ASSIGN_OR_RETURN(std::unique_ptr<Exporter> exporter,
                         Exporter::Start(address.host, address.port, std::move(sources)));
  Log(LogLevel::kInfo, absl::StrCat("metrics: ", exporter->url()));
  if (!exporter->loopback()) {
    Log(LogLevel::kWarning, absl::StrCat("--metrics-listen: whoever reaches ", exporter->url(),
                                         " can read what this server does, without encryption"));
  }
  return exporter;
}

// Waits for all running jobs to save their state, and aborts them at the second signal or when the time is up. False if
// they do not end even then.
bool EndJobs(JobManager* manager, const ShutdownSignals& signals, std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (signals.count() < 2 && Clock::now() < deadline) {
    if (manager->WaitIdle(std::min(deadline, Clock::now() + kPollInterval))) return true;
  }
  if (manager->WaitIdle(Clock::now())) return true;
  if (signals.count() < 2)
    Log(LogLevel::kWarning,
        "jobs did not save their state within the drain timeout: they go on from their last checkpoints");
  manager->AbortAll();
  return manager->WaitIdle(Clock::now() + kAbortTimeout);
}

}  // namespace

int RunServer(const ServerConfig& config, ShutdownSignals* signals, ConfigReloader* reloader) {
  const absl::Time started_at = absl::Now();
  RouteGrpcLog();
  const absl::StatusOr<std::vector<Descriptor>> passed = PassedSocketsFromEnvironment();
  if (!passed.ok()) return Report(kExitListen, passed.status());
  const absl::StatusOr<ServingAddresses> serving = ChooseAddresses(config, *passed);
  if (!serving.ok()) return Report(kExitListen, serving.status());
  if (!serving->passed.empty()) {
    Log(LogLevel::kInfo, absl::StrCat("sockets that were passed: ", absl::StrJoin(serving->passed, ", ")));
  }
  const std::vector<std::string> to_serve = serving->all();
  if (const absl::Status allowed = CheckAccess(config, to_serve); !allowed.ok()) {
    return Report(kExitUsage, allowed);
  }
  Access access;
  if (!config.access_file.empty()) {
    const absl::Status loaded = access.Load(config.access_file);
    if (!loaded.ok()) return Report(kExitUsage, Annotate(loaded, "--access-file"));
  }
  if (const absl::Status usable = CheckPortFile(config.port_file); !usable.ok()) return Report(kExitFailure, usable);
  std::error_code error;
  const std::filesystem::path state_dir = std::filesystem::absolute(config.state_dir, error);
  if (error) return ReportState(config.state_dir, absl::UnavailableError(error.message()));
  const std::filesystem::path jobs_folder = JobsFolder(state_dir);
  if (const absl::Status made = MakeFolders(jobs_folder); !made.ok()) return ReportState(state_dir, made);

  StoreLimits limits = {.max_age = config.max_job_age()};
  limits.forgotten = [jobs_folder](const std::string& id) { RemoveJobFolder(jobs_folder / id); };
  absl::StatusOr<std::unique_ptr<SqliteStore>> store = SqliteStore::Open(state_dir, limits);
  if (!store.ok()) return ReportState(state_dir, store.status());
  WarnOfLostJobs(**store, state_dir);

  absl::StatusOr<SelectedBackend> selected = SelectBackend(PluginFolder(config.plugin_dir), config.backend);
  if (!selected.ok()) return Report(kExitBackend, selected.status());
  LogBackend(*selected);

  DatasetCatalog catalog(config.data_dirs);
  LogDatasets(config.data_dirs, catalog);
  JobManagerOptions options = {.checkpoint_root = jobs_folder};
  options.limits = LimitsOf(config);
  options.collective_timeout = config.collective_timeout;
  // A supervisor starts the next process.
  std::atomic<bool> unusable{false};
  options.unusable = [&unusable, signals](const std::string& why) {
    Log(LogLevel::kError, absl::StrCat("ending so that a new process can go on: ", why));
    // A second signal would not let the other jobs save their state.
    if (!unusable.exchange(true) && signals->count() == 0) ::kill(::getpid(), SIGTERM);
  };
  CountingStore counting(store->get());
  JobManager manager(options, selected->backend.get(), &catalog, &counting);
  if (const absl::Status recovered = manager.Recover(config.running_jobs_go_on); !recovered.ok()) {
    return ReportState(state_dir, recovered);
  }
  const bool at_default = std::count(serving->bound.begin(), serving->bound.end(), DefaultListen()) > 0;
  if (const absl::Status made = at_default ? MakeDefaultSocketFolder() : absl::OkStatus(); !made.ok()) {
    return Report(kExitListen, made);
  }
  const bool all_local = std::all_of(to_serve.begin(), to_serve.end(), IsLocalAddress);
  const ServerIdentity identity = {
      .version = LENET_VERSION, .backend_reason = selected->reason, .started_at = started_at};
  absl::StatusOr<std::unique_ptr<RpcServer>> server =
      RpcServer::Start({.listen = serving->bound,
                        .sockets = *passed,
                        .unix_group = UnixSocketGroup(),
                        .tls = config.tls,
                        .access = config.access_file.empty() ? nullptr : &access,
                        .reflection = config.access_file.empty() && all_local,
                        .limits = config.rpc},
                       identity, &manager, selected->backend.get(), &catalog);
  if (!server.ok()) return Report(absl::IsInvalidArgument(server.status()) ? kExitUsage : kExitListen, server.status());
  WarnOfOpenAddresses(config, (*server)->addresses());
  const std::string addresses = absl::StrJoin((*server)->addresses(), ", ");
  const std::string port_file = PortFileText((*server)->addresses());

  std::unique_ptr<GpuMonitor> gpus;
  if (config.metrics_listen != kNoMetrics) gpus = WatchGpus(*selected->backend);
  const absl::StatusOr<std::unique_ptr<Exporter>> exporter =
      StartExporter(config.metrics_listen, {.version = LENET_VERSION,
                                            .backend = selected->backend.get(),
                                            .manager = &manager,
                                            .store = &counting,
                                            .calls = &(*server)->counters(),
                                            .streams = [rpc = server->get()] { return rpc->stream_load(); },
                                            .gpus = gpus.get()});
  if (!exporter.ok()) {
    const absl::Status status = Annotate(exporter.status(), "--metrics-listen");
    // Of several servers on a machine that ask for nothing else, one has the default address.
    if (config.metrics_listen != ServerConfig().metrics_listen) return Report(kExitListen, status);
    Log(LogLevel::kWarning, absl::StrCat("no metrics are served: ", status.message()));
    gpus.reset();  // nobody asks for their sensors
  }

  Supervision supervision(ServiceManager::FromEnvironment(), {.watchdog = WatchdogTimeoutFromEnvironment()},
                          WatchedParts(store->get(), &manager, server->get()));
  const std::string warming_up = absl::StrCat("warming up ", Count(std::ssize(selected->backend->devices()), "device"));
  supervision.Enter({.status = [warming_up] { return warming_up; }, .longest = kLongestWarmUp});
  signals->SetCallback([&](int) {
    (*server)->SetServing(false);
    manager.BeginDrain();
  });
  std::vector<std::filesystem::path> data_dirs = config.data_dirs;
  reloader->SetApply([&](const ServerConfig& changed) {
    SetLogLevel(changed.log_level);
    manager.SetLimits(LimitsOf(changed));
    (*server)->SetLimits(changed.rpc);
    (*store)->SetMaxAge(changed.max_job_age());
    (*server)->RefreshUsers();
    if (!config.access_file.empty()) ReloadAccess(config.access_file, &access);
    if (changed.data_dirs == data_dirs) return;
    data_dirs = changed.data_dirs;
    catalog.SetRoots(data_dirs);
    LogDatasets(data_dirs, catalog);
  });
  const absl::Cleanup no_reloads = [reloader] { reloader->SetApply(nullptr); };
  const absl::Status warm = manager.WarmUp();
  if (!warm.ok() && !absl::IsCancelled(warm)) {
    signals->SetCallback(nullptr);
    return Report(kExitBackend, absl::Status(warm.code(), absl::StrCat("the ", selected->backend->name(),
                                                                       " devices failed: ", warm.message())));
  }
  absl::Status port_written;
  if (signals->count() == 0) {
    manager.Serve();
    (*server)->SetServing(true);
    port_written = WritePortFile(config.port_file, port_file);
    Log(LogLevel::kInfo,
        absl::StrCat("serving on ", addresses, "; ready after ",
                     absl::FormatDuration(absl::Trunc(absl::Now() - started_at, absl::Milliseconds(1)))));
    if (port_written.ok()) {
      supervision.Enter({.state = "READY=1", .status = [&] { return ServingStatus(manager, addresses); }});
    }
    MemoryReturn memory;
    Clock::time_point forget_at = Clock::now() + kForgetInterval;
    while (port_written.ok() && !signals->WaitForFirst(Clock::now() + kMemoryInterval)) {
      memory.Tick();
      if (Clock::now() < forget_at) continue;
      ForgetOldJobs(store->get());
      forget_at = Clock::now() + kForgetInterval;
    }
  }

  supervision.Enter({.state = "STOPPING=1",
                     .status = [&manager] { return DrainingStatus(manager); },
                     .longest = config.drain_timeout + kAbortTimeout + kStreamTimeout + kCloseTimeout,
                     .watched = false});
  (*server)->SetServing(false);
  manager.BeginDrain();
  const bool ended = EndJobs(&manager, *signals, config.drain_timeout);
  (*server)->Shutdown(Clock::now() + kStreamTimeout);
  signals->SetCallback(nullptr);
  if (!config.port_file.empty()) RemovePortFile(config.port_file, port_file);
  if (!ended) {
    Log(LogLevel::kError, "jobs did not end though aborted; leaving without them");
    // Their threads may use anything that would be destroyed now.
    std::_Exit(kExitStuckJobs);
  }
  if (!port_written.ok()) return Report(kExitFailure, port_written);
  if (unusable) return Report(kExitUnusable, absl::UnavailableError("shut down for a new process to go on"));
  Log(LogLevel::kInfo, "shut down");
  return kExitOk;
}

}  // namespace lenet
