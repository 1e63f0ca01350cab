#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string_view>

#include "absl/strings/str_cat.h"
#include "server/app.h"
#include "server/command_line.h"
#include "server/config_reloader.h"
#include "server/logging.h"
#include "server/reload_signal.h"
#include "server/selftest_command.h"
#include "server/shutdown_signals.h"
#include "server/token_command.h"
#include "trainer/base/log.h"

namespace {

// Those of standard input, output and error that are closed become /dev/null: the next files and sockets would take
// their numbers, and get what is written to these.
void OpenStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != fd) ::_exit(lenet::kExitFailure);
  }
}

// In main it would be too late: libgrpc takes a descriptor when it is loaded. This runs before the libraries' own code.
[[gnu::section(".preinit_array"), gnu::used]] void (*open_standard_descriptors)() = OpenStandardDescriptors;

// As many files and connections as this process may have: the limit that it starts with is often 1024, for the sake of
// programs that use select().
void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  const bool raised = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
  lenet::Log(lenet::LogLevel::kDebug,
             absl::StrCat("descriptors: limit ", before, raised ? ", now " : ", not raised to ", limit.rlim_max));
}

}  // namespace

int main(int argc, char** argv) {
  // Fixed: by default it rises to the largest block that was freed, and each thread's arena then keeps and fragments
  // the buffers of the jobs that are over (measured: 20 MB more after every 40 short jobs).
  mallopt(M_MMAP_THRESHOLD, 128 << 10);  // NOLINT(concurrency-mt-unsafe): before any other thread
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "selftest") return lenet::SelftestCommand(argc - 1, argv + 1);
  if (command == "token") return lenet::TokenCommand(argc - 1, argv + 1);
  const lenet::CommandLine command_line = lenet::ParseCommandLine(argc, argv);
  if (!command_line.config) return command_line.exit_code;
  lenet::SetUpLogging(command_line.config->log_level);
  RaiseDescriptorLimit();
  if (command_line.file_found) {
    lenet::Log(lenet::LogLevel::kInfo, absl::StrCat("configuration file: ", command_line.sources.file.string()));
  }
  lenet::ConfigReloader reloader(command_line.sources, *command_line.config, command_line.file_found);
  lenet::ReloadSignal reload_signal([&reloader] { reloader.Reload(); });
  lenet::ShutdownSignals signals;
  const int exit_code = lenet::RunServer(*command_line.config, &signals, &reloader);
  lenet::FlushLog();
  return exit_code;
}
