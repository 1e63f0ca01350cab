#include "server/app.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/job/job_manager.h"
#include "server/rpc/rpc_server.h"
#include "server/store/memory_store.h"
#include "trainer/backend/plugin.h"
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

int Report(int exit_code, const absl::Status& status) {
  Log(LogLevel::kError, status.message());
  return exit_code;
}

void LogBackend(const SelectedBackend& selected) {
  const std::span<const DeviceInfo> devices = selected.backend->devices();
  std::string line = absl::StrCat("backend ", selected.backend->name(), ": ", devices.size(), " x ",
                                  devices.empty() ? "" : devices.front().name);
  if (!selected.reason.empty()) absl::StrAppend(&line, "; no GPU: ", selected.reason);
  Log(LogLevel::kInfo, line);
}

bool IsLocal(absl::string_view listen) {
  return absl::StartsWith(listen, "127.") || absl::StartsWith(listen, "localhost:") ||
         absl::StartsWith(listen, "[::1]:") || absl::StartsWith(listen, "unix:");
}

absl::Status WritePortFile(const std::filesystem::path& path, const std::string& address) {
  if (path.empty()) return absl::OkStatus();
  const std::string line = address + "\n";
  const std::span<const std::byte> bytes = std::as_bytes(std::span(line));
  return WriteFileAtomic(path, std::span(&bytes, 1));
}

// Waits for all jobs to stop, and aborts them at the second signal or when the time is up. False if they do not end
// even then.
bool EndJobs(JobManager* manager, const ShutdownSignals& signals, std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (signals.count() < 2 && Clock::now() < deadline) {
    if (manager->WaitIdle(std::min(deadline, Clock::now() + kPollInterval))) return true;
  }
  if (manager->WaitIdle(Clock::now())) return true;
  if (signals.count() < 2) Log(LogLevel::kWarning, "jobs did not stop within the drain timeout: aborting them");
  manager->AbortAll();
  return manager->WaitIdle(Clock::now() + kAbortTimeout);
}

}  // namespace

int RunServer(const ServerConfig& config, ShutdownSignals* signals) {
  const absl::Time started_at = absl::Now();
  RouteGrpcLog();
  std::error_code error;
  const std::filesystem::path jobs_folder = config.state_dir / "jobs";
  std::filesystem::create_directories(jobs_folder, error);
  if (error) {
    return Report(kExitFailure, absl::UnavailableError(absl::StrCat("--state-dir: cannot make ", jobs_folder.string(),
                                                                    ": ", error.message())));
  }

  absl::StatusOr<SelectedBackend> selected = SelectBackend(PluginFolder(config.plugin_dir), config.backend);
  if (!selected.ok()) return Report(kExitBackend, selected.status());
  LogBackend(*selected);

  DatasetCatalog catalog(config.data_dirs);
  MemoryStore store;
  JobManager manager({.checkpoint_root = jobs_folder}, selected->backend.get(), &catalog, &store);
  const ServerIdentity identity = {
      .version = LENET_VERSION, .backend_reason = selected->reason, .started_at = started_at};
  absl::StatusOr<std::unique_ptr<RpcServer>> server =
      RpcServer::Start({.listen = config.listen}, identity, &manager, selected->backend.get(), &catalog);
  if (!server.ok()) return Report(kExitListen, server.status());
  if (!IsLocal(config.listen)) {
    Log(LogLevel::kWarning, absl::StrCat("listening on ", (*server)->address(),
                                         " without encryption: whoever reaches it can start and stop jobs"));
  }

  signals->SetCallback([&](int) {
    (*server)->SetServing(false);
    manager.BeginDrain();
  });
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
    port_written = WritePortFile(config.port_file, (*server)->address());
    Log(LogLevel::kInfo,
        absl::StrCat("serving on ", (*server)->address(), ", ready after ",
                     absl::FormatDuration(absl::Trunc(absl::Now() - started_at, absl::Milliseconds(1)))));
    if (port_written.ok()) signals->WaitForFirst();
  }

  (*server)->SetServing(false);
  manager.BeginDrain();
  const bool ended = EndJobs(&manager, *signals, config.drain_timeout);
  (*server)->Shutdown(Clock::now() + kStreamTimeout);
  signals->SetCallback(nullptr);
  if (!config.port_file.empty()) std::filesystem::remove(config.port_file, error);
  if (!ended) {
    Log(LogLevel::kError, "jobs did not end though aborted; leaving without them");
    // Their threads may use anything that would be destroyed now.
    std::_Exit(kExitStuckJobs);
  }
  if (!port_written.ok()) return Report(kExitFailure, Annotate(port_written, "--port-file"));
  Log(LogLevel::kInfo, "shut down");
  return kExitOk;
}

}  // namespace lenet
