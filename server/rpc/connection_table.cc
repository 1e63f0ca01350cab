#include "server/rpc/connection_table.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/requests.h"
#include "server/rpc/users.h"
#include "trainer/base/log.h"

namespace lenet {
namespace {

// As CountedClient() of its calls.
std::string CountedClient(Descriptor connection) {
  if (const std::optional<uid_t> user = PeerOf(connection)) return absl::StrCat("unix:", *user);
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  // Of a client that is gone already nothing is known.
  if (::getpeername(connection.number, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  const void* const ip = address.ss_family == AF_INET
                             ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(&address)->sin_addr)
                             : &reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr;
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(address.ss_family, ip, text, sizeof(text));
  return NetworkOf(text);
}

}  // namespace

void ConnectionTable::SetLimits(const RpcLimits& limits) {
  MutexLock lock(&mutex_);
  limits_ = limits;
}

absl::Status ConnectionTable::Add(Descriptor connection) {
  struct stat info = {};
  if (::fstat(connection.number, &info) != 0) return absl::InternalError("the connection is no open file");
  std::string client = CountedClient(connection);
  MutexLock lock(&mutex_);
  // The number is this one's now, so what had it is closed.
  if (const auto before = connections_.find(connection.number); before != connections_.end()) Remove(before);
  absl::Status room = Check(client);
  const auto now = std::chrono::steady_clock::now();
  if (!room.ok() && (!looked_at_ || now - *looked_at_ >= kLookEvery)) {
    looked_at_ = now;
    RemoveClosed();
    room = Check(client);
  }
  if (!room.ok()) return room;
  ++clients_[client];
  connections_[connection.number] = {.device = info.st_dev, .inode = info.st_ino, .client = std::move(client)};
  return absl::OkStatus();
}

void ConnectionTable::CountReset(const std::string& client) {
  {
    MutexLock lock(&mutex_);
    EndResetWindow();
    if (limits_.max_resets_per_client == 0 || ++resets_[client] != limits_.max_resets_per_client + 1) return;
    for (const auto& [descriptor, connection] : connections_) {
      // gRPC, which closes it, is told by the system.
      if (connection.client == client && IsOpen(descriptor, connection)) ::shutdown(descriptor, SHUT_RDWR);
    }
  }
  Log(LogLevel::kWarning, absl::StrCat("closing the connections of ", client, ": it took back more calls than it may"));
}

void ConnectionTable::EndResetWindow() {
  const auto now = std::chrono::steady_clock::now();
  if (now < window_ends_at_) return;
  resets_.clear();
  window_ends_at_ = now + reset_window_;
}

absl::Status ConnectionTable::Check(const std::string& client) {
  EndResetWindow();
  if (const auto resets = resets_.find(client);
      limits_.max_resets_per_client != 0 && resets != resets_.end() && resets->second > limits_.max_resets_per_client) {
    return absl::ResourceExhaustedError(absl::StrCat(client, " took back ", resets->second, " calls that had just begun; the limit is ",
                                                     limits_.max_resets_per_client, " (limits.max_resets_per_client)"));
  }
  if (connections_.size() >= limits_.max_connections) {
    return absl::ResourceExhaustedError(absl::StrCat(connections_.size(), " are open; the limit is ",
                                                     limits_.max_connections, " (limits.max_connections)"));
  }
  const auto held = clients_.find(client);
  if (limits_.max_connections_per_client == 0 || held == clients_.end() ||
      held->second < limits_.max_connections_per_client) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(client, " has ", held->second, " open; the limit is ",
                                                   limits_.max_connections_per_client,
                                                   " (limits.max_connections_per_client)"));
}

void ConnectionTable::Remove(Connections::iterator connection) {
  const auto client = clients_.find(connection->second.client);
  if (--client->second == 0) clients_.erase(client);
  connections_.erase(connection);
}

void ConnectionTable::RemoveClosed() {
  for (auto next = connections_.begin(); next != connections_.end();) {
    const auto connection = next++;
    if (!IsOpen(connection->first, connection->second)) Remove(connection);
  }
}

bool ConnectionTable::IsOpen(int descriptor, const Connection& connection) {
  struct stat info = {};
  return ::fstat(descriptor, &info) == 0 && S_ISSOCK(info.st_mode) && info.st_dev == connection.device &&
         info.st_ino == connection.inode;
}

}  // namespace lenet
