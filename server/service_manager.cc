#include "server/service_manager.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/environment.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr char kSocketVariable[] = "NOTIFY_SOCKET";
constexpr char kUsecVariable[] = "WATCHDOG_USEC";
constexpr char kPidVariable[] = "WATCHDOG_PID";
constexpr char kListenPidVariable[] = "LISTEN_PID";
constexpr char kListenFdsVariable[] = "LISTEN_FDS";
constexpr int kFirstPassed = 3;  // SD_LISTEN_FDS_START
constexpr int kMostPassed = 64;
constexpr time_t kSendSeconds = 3;

absl::Status Failed(absl::string_view socket, int error) {
  return absl::UnavailableError(
      absl::StrCat("the service manager's socket '", socket, "': ", std::generic_category().message(error)));
}

// From 1 on.
absl::StatusOr<int64_t> ParseNumber(absl::string_view name, absl::string_view text) {
  int64_t number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= 1) return number;
  return absl::InvalidArgumentError(absl::StrCat("$", name, ": \"", text, "\" must be a number from 1 to ", INT64_MAX));
}

}  // namespace

absl::StatusOr<ServiceManager> ServiceManager::At(absl::string_view socket) {
  constexpr size_t kMaxName = sizeof(sockaddr_un::sun_path) - 1;
  const bool valid = socket.size() > 1 && (absl::StartsWith(socket, "/") || absl::StartsWith(socket, "@"));
  if (!valid || socket.size() > kMaxName) {
    return absl::InvalidArgumentError(absl::StrCat("\"", socket, "\" must be a path that begins with '/', or a name ",
                                                   "that begins with '@', of at most ", kMaxName, " bytes"));
  }
  return ServiceManager(socket);
}

ServiceManager ServiceManager::FromEnvironment() {
  const std::string socket = Environment(kSocketVariable);
  if (socket.empty()) return ServiceManager();
  absl::StatusOr<ServiceManager> manager = At(socket);
  if (manager.ok()) return *std::move(manager);
  Log(LogLevel::kWarning,
      absl::StrCat("no service manager is told of anything: $", kSocketVariable, ": ", manager.status().message()));
  return ServiceManager();
}

absl::Status ServiceManager::Notify(absl::string_view lines) const {
  if (!present()) return absl::OkStatus();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::copy(socket_.begin(), socket_.end(), address.sun_path);
  // An abstract name begins with a zero, and its length alone ends it.
  const bool abstract = socket_.front() == '@';
  if (abstract) address.sun_path[0] = '\0';
  const size_t length = offsetof(sockaddr_un, sun_path) + socket_.size() + (abstract ? 0 : 1);

  const UniqueDescriptor own(Descriptor{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)});
  if (!own) return Failed(socket_, errno);
  const timeval patience = {.tv_sec = kSendSeconds};
  if (::setsockopt(own.get().number, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) != 0) {
    return Failed(socket_, errno);
  }
  ssize_t sent = -1;
  do {
    sent = ::sendto(own.get().number, lines.data(), lines.size(), MSG_NOSIGNAL,
                    reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length));
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? Failed(socket_, errno) : absl::OkStatus();
}

absl::StatusOr<std::optional<std::chrono::microseconds>> WatchdogTimeout(absl::string_view usec, absl::string_view pid,
                                                                         pid_t self) {
  if (usec.empty()) return std::nullopt;
  LENET_ASSIGN_OR_RETURN(const int64_t timeout, ParseNumber(kUsecVariable, usec));
  if (!pid.empty()) {
    LENET_ASSIGN_OR_RETURN(const int64_t meant, ParseNumber(kPidVariable, pid));
    if (meant != self) return std::nullopt;
  }
  return std::chrono::microseconds(timeout);
}

std::optional<std::chrono::microseconds> WatchdogTimeoutFromEnvironment() {
  const absl::StatusOr<std::optional<std::chrono::microseconds>> timeout =
      WatchdogTimeout(Environment(kUsecVariable), Environment(kPidVariable), ::getpid());
  if (timeout.ok()) return *timeout;
  Log(LogLevel::kWarning, absl::StrCat("no signs of life for the service manager: ", timeout.status().message()));
  return std::nullopt;
}

absl::StatusOr<std::vector<Descriptor>> PassedSockets(absl::string_view pid, absl::string_view fds, pid_t self) {
  std::vector<Descriptor> sockets;
  if (pid.empty() || fds.empty()) return sockets;
  LENET_ASSIGN_OR_RETURN(const int64_t meant, ParseNumber(kListenPidVariable, pid));
  if (meant != self) return sockets;
  LENET_ASSIGN_OR_RETURN(const int64_t count, ParseNumber(kListenFdsVariable, fds));
  if (count > kMostPassed) {
    return absl::InvalidArgumentError(absl::StrCat("$", kListenFdsVariable, ": ", count,
                                                   " sockets were passed to serve on; must be at most ", kMostPassed));
  }
  for (int i = 0; i < count; ++i) sockets.push_back(Descriptor{kFirstPassed + i});
  return sockets;
}

absl::StatusOr<std::vector<Descriptor>> PassedSocketsFromEnvironment() {
  return PassedSockets(Environment(kListenPidVariable), Environment(kListenFdsVariable), ::getpid());
}

}  // namespace lenet
