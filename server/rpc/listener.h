// The sockets that the server listens on, and the thread that takes connections from them. gRPC's own listener ends for
// good at the first connection that it cannot have a descriptor for.
#ifndef LENET_SERVER_RPC_LISTENER_H_
#define LENET_SERVER_RPC_LISTENER_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/base/descriptor.h"
#include "trainer/base/heartbeat.h"

namespace lenet {

class ConnectionTable;

// "host:port" with a name, an IPv4 address or a bracketed IPv6 address, and port 0 for any free one; or "unix:path".
struct ListenAddress {
  std::string host;
  int port = 0;
  std::string unix_path;  // not empty: a unix socket, and the others mean nothing

  bool is_unix() const { return !unix_path.empty(); }
};

// Whether this machine alone reaches it: a unix socket, "localhost", 127.0.0.0/8 or ::1.
bool IsLocal(const ListenAddress& address);

// INVALID_ARGUMENT, with the reason, if it has neither form.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text);

// The address of a socket that listens already, in the form that ParseListenAddress takes. INVALID_ARGUMENT, with the
// reason, if it is no such socket, or its address has no such form.
absl::StatusOr<std::string> AddressOfSocket(Descriptor socket);

struct ListenerOptions {
  // How long what was sent to a TCP client may stay unacknowledged (TCP_USER_TIMEOUT).
  std::chrono::milliseconds peer_timeout{10000};
  // The group whose members reach the unix socket that is bound. Without, it is that of the process, and the umask
  // decides.
  std::optional<gid_t> unix_group;
  // Says how many connections there may be; those that are too many are closed at once. Outlives it; null: no limit.
  ConnectionTable* connections = nullptr;
};

class Listener {
 public:
  // Gets a connection and the socket that it came from. Called on the accept thread; an error, which refuses the
  // connection, goes to the log.
  using Handler = std::function<absl::Status(int listener, UniqueDescriptor connection)>;

  // Listens on all addresses of the host, on one port; clients wait until Start. Of a host with several addresses those
  // that this machine does not have are left out. A unix socket is never open to more than its owner and group; one
  // that is left from a process that has ended is replaced, any other file is not. UNAVAILABLE, with the system's
  // reason, if the address cannot be had.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(const ListenAddress& address, ListenerOptions options = {});

  // Takes over a socket that listens already, as a service manager passes it. Its file, if it has one, stays when the
  // listener stops. Errors as AddressOfSocket; UNAVAILABLE, with the system's reason.
  static absl::StatusOr<std::unique_ptr<Listener>> Adopt(UniqueDescriptor socket, ListenerOptions options = {});

  // Stop().
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // As the text that was parsed, with the port that was got.
  const std::string& address() const { return address_; }

  // Hands connections to `handler` from now on. What the system cannot give now it may give later: no error ends this.
  // The last 64 descriptors that the process may have (a quarter, if that is less) are kept for its other work: when
  // only they are left, new connections are closed at once.
  void Start(Handler handler);

  // After Start: waits until the accept thread has looked at the sockets once more; false if the deadline passes first.
  bool Responds(std::chrono::steady_clock::time_point deadline);

  // Takes no more connections and frees the address; removes the unix socket's file if it is still the one made here.
  // No handler runs when it returns. Not from a handler.
  void Stop();

 private:
  // Of a file, while a process holds it open.
  struct FileId {
    uint64_t device = 0;
    uint64_t inode = 0;
    bool operator==(const FileId&) const = default;
  };

  explicit Listener(ListenerOptions options) : options_(options) {}

  absl::Status MakeWake();
  absl::Status BindHost(const ListenAddress& address);
  absl::Status BindUnix(const std::string& path);

  void Run(const Handler& handler);
  // Takes what waits on the socket. False if the system lacks something for it now.
  bool Accept(int listener, const Handler& handler);
  void WarnOfRefusal(absl::string_view why);

  const ListenerOptions options_;
  std::string address_;
  std::vector<UniqueDescriptor> sockets_;
  std::string unix_path_;  // of the file to remove
  FileId unix_file_;
  UniqueDescriptor wake_;  // an eventfd
  std::atomic<bool> stop_{false};
  Heartbeat heartbeat_;
  std::thread thread_;
  std::optional<std::chrono::steady_clock::time_point> warned_at_;  // the thread's
};

}  // namespace lenet

#endif  // LENET_SERVER_RPC_LISTENER_H_
