#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <string>
#include <vector>

#include "client/ctl/app.h"
#include "client/ctl/environment.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/output.h"
#include "grpc/support/log.h"

namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

// The first Ctrl-C leaves in order; a second one ends the process as if there were no handler.
void HandleInterrupt() {
  struct sigaction action {};
  sigaction(SIGINT, nullptr, &action);
  // Whoever started this process may have switched the signal off, as a shell does for jobs in the background.
  if (action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
}

// A standard descriptor that is closed would become one of a connection's. In place of it stands one that cannot be
// used as it would be, so that output that goes nowhere is still an error.
void OccupyStandardDescriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // Opening takes the lowest free one.
    if (fcntl(descriptor, F_GETFD) == -1) open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace

int main(int argc, char** argv) {
  OccupyStandardDescriptors();
  // There is no other thread yet.
  // NOLINTBEGIN(concurrency-mt-unsafe)
  // For the widths of characters; UTF-8 even where the environment names no locale.
  if (setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
  const char* verbosity = getenv("GRPC_VERBOSITY");
  // NOLINTEND(concurrency-mt-unsafe)
  HandleInterrupt();
  // What gRPC would write of a connection that fails is in the status of the call.
  if (verbosity == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
  lenet::ctl::StandardOutput output;
  try {
    return lenet::ctl::RunApp(std::vector<std::string>(argv + 1, argv + argc), lenet::ctl::Variable("LENET_SERVER"),
                              &interrupted, &output);
  } catch (const std::exception& error) {
    output.WriteError(std::string("lenetctl: ") + error.what() + "\n");
    return lenet::ctl::kError;
  }
}
