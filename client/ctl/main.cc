#include <locale.h>
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <exception>
#include <string>
#include <vector>

#include "client/ctl/app.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/output.h"

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

}  // namespace

int main(int argc, char** argv) {
  // There is no other thread yet.
  // NOLINTBEGIN(concurrency-mt-unsafe)
  // For the widths of characters; UTF-8 even where the environment names no locale.
  if (setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
  const char* server = getenv("LENET_SERVER");
  // NOLINTEND(concurrency-mt-unsafe)
  HandleInterrupt();
  lenet::ctl::StandardOutput output;
  try {
    return lenet::ctl::RunApp(std::vector<std::string>(argv + 1, argv + argc), server != nullptr ? server : "",
                              &interrupted, &output);
  } catch (const std::exception& error) {
    output.WriteError(std::string("lenetctl: ") + error.what() + "\n");
    return lenet::ctl::kError;
  }
}
