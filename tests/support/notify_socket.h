// The service manager's end of the notification socket.
#ifndef LENET_TESTS_SUPPORT_NOTIFY_SOCKET_H_
#define LENET_TESTS_SUPPORT_NOTIFY_SOCKET_H_

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace lenet {

class NotifySocket {
 public:
  // `name` as in $NOTIFY_SOCKET: a path, or '@' and an abstract name.
  explicit NotifySocket(const std::string& name) : name_(name), fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof(address.sun_path));
    if (name[0] == '@') address.sun_path[0] = '\0';
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address),
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
              0)
        << name;
  }
  ~NotifySocket() { ::close(fd_); }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  const std::string& name() const { return name_; }

  // The next message; nothing if none comes in time.
  std::optional<std::string> Receive(std::chrono::milliseconds patience) const {
    pollfd wait = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, static_cast<int>(patience.count())) != 1) return std::nullopt;
    char buffer[4096];
    const ssize_t size = ::recv(fd_, buffer, sizeof(buffer), 0);
    return std::string(buffer, size > 0 ? static_cast<size_t>(size) : 0);
  }

 private:
  const std::string name_;
  const int fd_;
};

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_NOTIFY_SOCKET_H_
