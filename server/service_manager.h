// What lenetd says to the service manager that started it, in the protocol of sd_notify(3). It is a few datagrams, and
// libsystemd, which offers the same, is missing on hosts where lenetd runs from a copied folder.
#ifndef LENET_SERVER_SERVICE_MANAGER_H_
#define LENET_SERVER_SERVICE_MANAGER_H_

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/base/descriptor.h"

namespace lenet {

// Safe from any thread.
class ServiceManager {
 public:
  // Nobody is told.
  ServiceManager() = default;
  // INVALID_ARGUMENT unless `socket` is a path that begins with '/', or '@' and a name in the abstract namespace, and
  // short enough for a socket's address.
  static absl::StatusOr<ServiceManager> At(absl::string_view socket);
  // The one that $NOTIFY_SOCKET names, if it is set; one that cannot be used is logged.
  static ServiceManager FromEnvironment();

  bool present() const { return !socket_.empty(); }

  // Sends lines such as "READY=1\nSTATUS=serving" as one datagram. Waits a few seconds at most for a manager that takes
  // none. UNAVAILABLE, with the system's reason.
  absl::Status Notify(absl::string_view lines) const;

 private:
  explicit ServiceManager(absl::string_view socket) : socket_(socket) {}

  std::string socket_;
};

// How long the service manager waits for the next "WATCHDOG=1", by the values of $WATCHDOG_USEC and $WATCHDOG_PID,
// empty if not set: nothing if it does not wait, or for another process than `self`. INVALID_ARGUMENT if one of them is
// no number from 1 on.
absl::StatusOr<std::optional<std::chrono::microseconds>> WatchdogTimeout(absl::string_view usec, absl::string_view pid,
                                                                         pid_t self);
// From the environment of this process; what is wrong with it is logged.
std::optional<std::chrono::microseconds> WatchdogTimeoutFromEnvironment();

// The descriptors of the sockets that the service manager has passed, as sd_listen_fds(3) tells it, by the values of
// $LISTEN_PID and $LISTEN_FDS, empty if not set: none if there are none, or for another process than `self`.
// INVALID_ARGUMENT if there are more than 64, or the values are no numbers.
absl::StatusOr<std::vector<Descriptor>> PassedSockets(absl::string_view pid, absl::string_view fds, pid_t self);
// From the environment of this process.
absl::StatusOr<std::vector<Descriptor>> PassedSocketsFromEnvironment();

}  // namespace lenet

#endif  // LENET_SERVER_SERVICE_MANAGER_H_
