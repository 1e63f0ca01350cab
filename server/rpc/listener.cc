#include "server/rpc/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/rpc/connection_table.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr absl::string_view kUnixPrefix = "unix:";
constexpr rlim_t kReservedDescriptors = 64;
constexpr std::chrono::milliseconds kRetryAfter(100);
constexpr std::chrono::seconds kWarnEvery(10);
// Connections that are taken from one socket before the others and the end are looked at.
constexpr int kBatch = 64;
// Of a free port on the first address that is taken on another.
constexpr int kPortAttempts = 20;
constexpr std::chrono::seconds kLockTimeout(5);

std::string Reason(int error) { return std::generic_category().message(error); }

absl::Status CannotListen(absl::string_view address, absl::string_view reason) {
  return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": ", reason));
}

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  // Of an address of the internet.
  in_port_t* port() {
    return storage.ss_family == AF_INET6 ? &reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                         : &reinterpret_cast<sockaddr_in*>(&storage)->sin_port;
  }
  bool IsAnyIpv6() const {
    return storage.ss_family == AF_INET6 &&
           IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
  }
  bool operator==(const SocketAddress& other) const {
    return size == other.size && std::memcmp(&storage, &other.storage, size) == 0;
  }
};

// Each address of the host once: hosts files may have one twice.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const ListenAddress& address, absl::string_view text) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
      error != 0) {
    return CannotListen(text, error == EAI_SYSTEM ? Reason(errno) : ::gai_strerror(error));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    if (info->ai_family != AF_INET && info->ai_family != AF_INET6) continue;
    SocketAddress resolved;
    resolved.size = info->ai_addrlen;
    std::memcpy(&resolved.storage, info->ai_addr, info->ai_addrlen);
    if (std::find(addresses.begin(), addresses.end(), resolved) == addresses.end()) addresses.push_back(resolved);
  }
  ::freeaddrinfo(found);
  return addresses;
}

// Both give 0 or the system's error.
int SetOption(int fd, int level, int name, int value) {
  return ::setsockopt(fd, level, name, &value, sizeof(value)) == 0 ? 0 : errno;
}

int ListenTcp(const SocketAddress& address, std::chrono::milliseconds peer_timeout, UniqueDescriptor* out) {
  UniqueDescriptor made(Descriptor{::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)});
  if (!made) return errno;
  const int fd = made.get().number;
  int error = SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);  // connections of an earlier process may linger
  if (error == 0 && address.storage.ss_family == AF_INET6) {
    error = SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, address.IsAnyIpv6() ? 0 : 1);
  }
  // Connections inherit these two. gRPC sets them on sockets of its own alone.
  if (error == 0) error = SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (error == 0) error = SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(peer_timeout.count()));
  if (error != 0) return error;
  if (::bind(fd, address.get(), address.size) != 0 || ::listen(fd, SOMAXCONN) != 0) return errno;
  *out = std::move(made);
  return 0;
}

// Listens on all of them, on `*port`, or on one that is free if it is 0, which it is set to. Gives 0 or the system's
// error; addresses that this machine does not have are none, unless it has none of them.
int ListenOnAll(std::vector<SocketAddress> addresses, std::chrono::milliseconds peer_timeout, int* port,
                std::vector<UniqueDescriptor>* sockets) {
  sockets->clear();
  int missing = EADDRNOTAVAIL;
  for (SocketAddress& address : addresses) {
    *address.port() = htons(static_cast<in_port_t>(*port));
    UniqueDescriptor socket;
    const int error = ListenTcp(address, peer_timeout, &socket);
    if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) {
      missing = error;
      continue;
    }
    if (error != 0) return error;
    if (::getsockname(socket.get().number, address.get(), &address.size) != 0) return errno;
    *port = ntohs(*address.port());
    sockets->push_back(std::move(socket));
  }
  return sockets->empty() ? missing : 0;
}

SocketAddress UnixAddress(const std::string& path) {
  SocketAddress address;
  auto* const name = reinterpret_cast<sockaddr_un*>(&address.storage);
  name->sun_family = AF_UNIX;
  std::memcpy(name->sun_path, path.c_str(), path.size() + 1);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  return address;
}

// 0 if no process listens on this socket's file, else why it cannot be had.
int FindListener(const SocketAddress& address) {
  const UniqueDescriptor probe(Descriptor{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)});
  if (!probe) return errno;
  if (::connect(probe.get().number, address.get(), address.size) == 0) return EADDRINUSE;
  if (errno == ECONNREFUSED || errno == ENOENT) return 0;
  // EAGAIN: its queue of clients is full. EPROTOTYPE: it is of another kind.
  return errno == EAGAIN || errno == EPROTOTYPE ? EADDRINUSE : errno;
}

// Between the look at a socket's file and its replacement no other server may do the same. Nothing of the lock is left
// when the descriptor is closed.
absl::StatusOr<UniqueDescriptor> LockFolderOf(const std::string& path, absl::string_view text) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::filesystem::path folder = parent.empty() ? std::filesystem::path(".") : parent;
  UniqueDescriptor lock(Descriptor{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)});
  if (!lock) return CannotListen(text, absl::StrCat("folder '", folder.string(), "': ", Reason(errno)));
  const Clock::time_point deadline = Clock::now() + kLockTimeout;
  while (::flock(lock.get().number, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return CannotListen(text, absl::StrCat("cannot lock the folder '", folder.string(), "': ", Reason(errno)));
    }
    if (Clock::now() > deadline) {
      return CannotListen(text, absl::StrCat("another process holds a lock on the folder '", folder.string(), "'"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return lock;
}

absl::StatusOr<int> ParsePort(absl::string_view text) {
  int port = -1;
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(text, &port) || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("port \"", text, "\" must be 0 to 65535"));
  }
  return port;
}

absl::StatusOr<ListenAddress> ParseUnix(absl::string_view path) {
  constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty()) return absl::InvalidArgumentError("the path is empty");
  if (path.size() > kMaxPath) {
    return absl::InvalidArgumentError(
        absl::StrCat("the path has ", path.size(), " bytes; a unix socket's may have ", kMaxPath));
  }
  return ListenAddress{.unix_path = std::string(path)};
}

absl::StatusOr<ListenAddress> ParseHostPort(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return absl::InvalidArgumentError("it must be host:port or unix:path");
  LENET_ASSIGN_OR_RETURN(const int port, ParsePort(text.substr(colon + 1)));
  absl::string_view host = text.substr(0, colon);
  const bool bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (host.empty()) return absl::InvalidArgumentError("the host is empty");
  if (bracketed != absl::StrContains(host, ":")) {
    return absl::InvalidArgumentError("an IPv6 address, and nothing else, stands in brackets, as in [::1]:50051");
  }
  return ListenAddress{.host = std::string(host), .port = port};
}

std::string ToText(const ListenAddress& address, int port) {
  if (!address.unix_path.empty()) return absl::StrCat(kUnixPrefix, address.unix_path);
  const bool ipv6 = absl::StrContains(address.host, ":");
  return absl::StrCat(ipv6 ? "[" : "", address.host, ipv6 ? "]" : "", ":", port);
}

// Lets the group reach the socket at the path. By a descriptor: whoever may write in the folder could put a link to
// another file in its place.
int GiveSocketTo(gid_t group, const std::string& path) {
  const UniqueDescriptor file(Descriptor{::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)});
  struct stat info;
  if (!file || ::fstat(file.get().number, &info) != 0) return errno;
  if (!S_ISSOCK(info.st_mode)) return EEXIST;
  const bool given = ::fchownat(file.get().number, "", static_cast<uid_t>(-1), group, AT_EMPTY_PATH) == 0 &&
                     ::chmod(absl::StrCat("/proc/self/fd/", file.get().number).c_str(), 0660) == 0;
  return given ? 0 : errno;
}

}  // namespace

bool IsLocal(const ListenAddress& address) {
  if (!address.unix_path.empty() || address.host == "localhost") return true;
  // Not by the text's beginning: 127.example.org may be anyone's.
  in_addr ipv4 = {};
  if (::inet_pton(AF_INET, address.host.c_str(), &ipv4) == 1) return ntohl(ipv4.s_addr) >> 24 == 127;
  in6_addr ipv6 = {};
  return ::inet_pton(AF_INET6, address.host.c_str(), &ipv6) == 1 && IN6_IS_ADDR_LOOPBACK(&ipv6);
}

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text) {
  absl::string_view rest = text;
  const bool is_unix = absl::ConsumePrefix(&rest, kUnixPrefix);
  absl::StatusOr<ListenAddress> address = is_unix ? ParseUnix(rest) : ParseHostPort(rest);
  if (!address.ok()) {
    return Annotate(address.status(), absl::StrCat("\"", text, "\" is no address to listen on"));
  }
  return address;
}

absl::StatusOr<std::string> AddressOfSocket(Descriptor socket) {
  const auto refuse = [socket](absl::string_view reason) {
    return absl::InvalidArgumentError(absl::StrCat("descriptor ", socket.number, ": ", reason));
  };
  const auto option = [socket](int name) {
    int value = 0;
    socklen_t size = sizeof(value);
    return ::getsockopt(socket.number, SOL_SOCKET, name, &value, &size) == 0 ? value : -errno;
  };
  const int type = option(SO_TYPE);
  if (type < 0) return refuse(Reason(-type));
  if (type != SOCK_STREAM || option(SO_ACCEPTCONN) != 1) return refuse("is no socket that listens for connections");
  SocketAddress address;
  address.size = sizeof(address.storage);
  if (::getsockname(socket.number, address.get(), &address.size) != 0) return refuse(Reason(errno));
  switch (address.storage.ss_family) {
    case AF_UNIX: {
      const char* const path = reinterpret_cast<const sockaddr_un*>(&address.storage)->sun_path;
      const size_t most = address.size - offsetof(sockaddr_un, sun_path);
      const std::string text(path, ::strnlen(path, most));
      if (text.empty()) return refuse("is a unix socket without a path");
      return absl::StrCat(kUnixPrefix, text);
    }
    case AF_INET:
    case AF_INET6: {
      char host[NI_MAXHOST];
      if (const int error = ::getnameinfo(address.get(), address.size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
          error != 0) {
        return refuse(::gai_strerror(error));
      }
      return ToText({.host = host}, ntohs(*address.port()));
    }
    default:
      return refuse(
          absl::StrCat("is a socket of the family ", address.storage.ss_family, "; must be a unix or an IP socket"));
  }
}

absl::Status Listener::MakeWake() {
  wake_.reset(Descriptor{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)});
  return wake_ ? absl::OkStatus() : CannotListen(address_, Reason(errno));
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Adopt(UniqueDescriptor socket, ListenerOptions options) {
  std::unique_ptr<Listener> listener(new Listener(options));
  LENET_ASSIGN_OR_RETURN(listener->address_, AddressOfSocket(socket.get()));
  const int fd = socket.get().number;
  int error = ::fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && ::fcntl(fd, F_SETFL, O_NONBLOCK) == 0 ? 0 : errno;
  // As ListenTcp.
  if (error == 0 && !absl::StartsWith(listener->address_, kUnixPrefix)) {
    error = SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    const int timeout = static_cast<int>(options.peer_timeout.count());
    if (error == 0) error = SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, timeout);
  }
  if (error != 0) return CannotListen(listener->address_, Reason(error));
  listener->sockets_.push_back(std::move(socket));
  LENET_RETURN_IF_ERROR(listener->MakeWake());
  return listener;
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(const ListenAddress& address, ListenerOptions options) {
  std::unique_ptr<Listener> listener(new Listener(options));
  LENET_RETURN_IF_ERROR(address.unix_path.empty() ? listener->BindHost(address)
                                                  : listener->BindUnix(address.unix_path));
  LENET_RETURN_IF_ERROR(listener->MakeWake());
  return listener;
}

absl::Status Listener::BindHost(const ListenAddress& address) {
  const std::string text = ToText(address, address.port);
  LENET_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, Resolve(address, text));
  int port = 0;
  int error = 0;
  for (int attempt = 0; attempt < kPortAttempts; ++attempt) {
    port = address.port;
    error = ListenOnAll(addresses, options_.peer_timeout, &port, &sockets_);
    if (error != EADDRINUSE || address.port != 0) break;
  }
  if (error != 0) return CannotListen(text, Reason(error));
  address_ = ToText(address, port);
  return absl::OkStatus();
}

absl::Status Listener::BindUnix(const std::string& path) {
  address_ = absl::StrCat(kUnixPrefix, path);
  LENET_ASSIGN_OR_RETURN(const UniqueDescriptor lock, LockFolderOf(path, address_));
  const SocketAddress address = UnixAddress(path);
  struct stat info;
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) return CannotListen(address_, "there is a file of this name that is no socket");
    if (const int error = FindListener(address); error != 0) return CannotListen(address_, Reason(error));
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      return CannotListen(address_, absl::StrCat("cannot remove the socket that is left there: ", Reason(errno)));
    }
  } else if (errno != ENOENT) {
    return CannotListen(address_, Reason(errno));
  }

  UniqueDescriptor socket(Descriptor{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)});
  // On Linux the file gets the mode that the socket has before, less the umask: it is never open to others, and the
  // umask, which all threads share, stays. Nor is it ever open to another group.
  if (!socket || ::fchmod(socket.get().number, options_.unix_group ? 0600 : 0660) != 0 ||
      ::bind(socket.get().number, address.get(), address.size) != 0) {
    return CannotListen(address_, Reason(errno));
  }
  if (::lstat(path.c_str(), &info) != 0) return CannotListen(address_, Reason(errno));
  unix_path_ = path;
  unix_file_ = {.device = info.st_dev, .inode = info.st_ino};
  sockets_.push_back(std::move(socket));
  if (options_.unix_group) {
    if (const int error = GiveSocketTo(*options_.unix_group, path); error != 0) {
      return CannotListen(address_,
                          absl::StrCat("cannot give it to the group ", *options_.unix_group, ": ", Reason(error)));
    }
  }
  if (::listen(sockets_.back().get().number, SOMAXCONN) != 0) return CannotListen(address_, Reason(errno));
  return absl::OkStatus();
}

Listener::~Listener() { Stop(); }

void Listener::Start(Handler handler) {
  thread_ = std::thread([this, handler = std::move(handler)] {
    pthread_setname_np(pthread_self(), "accept");
    Run(handler);
  });
}

bool Listener::Responds(Clock::time_point deadline) {
  const uint64_t before = heartbeat_.beats();
  ::eventfd_write(wake_.get().number, 1);
  return heartbeat_.AwaitMore(before, deadline);
}

void Listener::Stop() {
  if (thread_.joinable()) {
    stop_ = true;
    ::eventfd_write(wake_.get().number, 1);
    thread_.join();
  }
  // While the socket is open its file's number is no other's, and whoever looks at the file finds a listener.
  struct stat info;
  if (!unix_path_.empty() && ::lstat(unix_path_.c_str(), &info) == 0 &&
      FileId{.device = info.st_dev, .inode = info.st_ino} == unix_file_ && ::unlink(unix_path_.c_str()) != 0) {
    Log(LogLevel::kWarning, absl::StrCat("cannot remove ", address_, ": ", Reason(errno)));
  }
  unix_path_.clear();
  sockets_.clear();
}

void Listener::Run(const Handler& handler) {
  pollfd wake = {.fd = wake_.get().number, .events = POLLIN, .revents = 0};
  std::vector<pollfd> waited = {wake};
  for (const UniqueDescriptor& socket : sockets_) {
    waited.push_back({.fd = socket.get().number, .events = POLLIN, .revents = 0});
  }
  while (!stop_) {
    heartbeat_.Beat();
    if (::poll(waited.data(), waited.size(), -1) < 0) continue;  // EINTR
    eventfd_t ignored;
    if (waited[0].revents != 0) ::eventfd_read(wake_.get().number, &ignored);
    bool pause = false;
    for (size_t i = 1; i < waited.size(); ++i) {
      if (waited[i].revents != 0 && !Accept(waited[i].fd, handler)) pause = true;
    }
    if (pause) ::poll(&wake, 1, static_cast<int>(kRetryAfter.count()));
  }
}

bool Listener::Accept(int listener, const Handler& handler) {
  for (int i = 0; i < kBatch; ++i) {
    UniqueDescriptor connection(Descriptor{::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)});
    if (!connection) {
      switch (errno) {
        case EAGAIN:
          return true;
        case EINTR:
        // Errors of the connection; accept(2) says to go on.
        case ECONNABORTED:
        case EPERM:
        case EPROTO:
        case ENETDOWN:
        case ENOPROTOOPT:
        case EHOSTDOWN:
        case ENONET:
        case EHOSTUNREACH:
        case EOPNOTSUPP:
        case ENETUNREACH:
          continue;
        default:
          WarnOfRefusal(absl::StrCat("cannot take a connection, trying again: ", Reason(errno)));
          return false;
      }
    }
    // A new descriptor has the lowest free number, so its number tells how many are in use.
    rlimit limit = {};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t reserved = std::min(kReservedDescriptors, limit.rlim_cur / 4);
    if (static_cast<rlim_t>(connection.get().number) >= limit.rlim_cur - reserved) {
      WarnOfRefusal(absl::StrCat("refusing connections: no more than ", reserved, " of ", limit.rlim_cur,
                                 " descriptors are left"));
      continue;
    }
    if (options_.connections != nullptr) {
      if (const absl::Status room = options_.connections->Add(connection.get()); !room.ok()) {
        WarnOfRefusal(absl::StrCat("refusing connections: ", room.message()));
        continue;
      }
    }
    if (const absl::Status taken = handler(listener, std::move(connection)); !taken.ok()) {
      WarnOfRefusal(absl::StrCat("refusing connections: ", taken.message()));
    }
  }
  return true;
}

void Listener::WarnOfRefusal(absl::string_view why) {
  const Clock::time_point now = Clock::now();
  if (warned_at_ && now - *warned_at_ < kWarnEvery) return;
  warned_at_ = now;
  Log(LogLevel::kWarning, why);
}

}  // namespace lenet
