#include "client/ctl/output.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace lenet::ctl {
namespace {

bool CanMoveCursor() {
  const char* term = getenv("TERM");  // NOLINT(concurrency-mt-unsafe): nothing sets the environment
  return isatty(STDOUT_FILENO) && term != nullptr && absl::string_view(term) != "dumb" && *term != '\0';
}

bool WriteAll(int descriptor, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EAGAIN) {
      // Another process that shares the descriptor has made it non-blocking.
      pollfd ready = {descriptor, POLLOUT, 0};
      poll(&ready, 1, -1);
      continue;
    }
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(written);
  }
  return true;
}

}  // namespace

StandardOutput::StandardOutput() : is_terminal_(CanMoveCursor()) {}

int StandardOutput::width() const {
  if (!is_terminal_) return 0;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

void StandardOutput::Write(absl::string_view text) { ok_ = ok_ && WriteAll(STDOUT_FILENO, text); }

void StandardOutput::WriteError(absl::string_view text) { WriteAll(STDERR_FILENO, text); }

}  // namespace lenet::ctl
