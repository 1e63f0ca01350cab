#include "client/ctl/address.h"

#include <arpa/inet.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/ctl/value_flags.h"

namespace lenet::ctl {

std::string CheckAddress(const std::string& address) {
  if (address == "unix:") return "server address \"unix:\" names no socket";
  if (absl::StartsWith(address, "unix:")) return "";
  if (absl::StrContains(address, "://")) {
    return absl::StrCat("server address \"", address, "\" must be HOST:PORT, without http://");
  }
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 || !ParseNumber(address.substr(colon + 1), &port, 1, 65535).empty()) {
    return absl::StrCat("server address \"", address, "\" is not HOST:PORT with a port from 1 to 65535");
  }
  const std::string host = address.substr(0, colon);
  if (absl::StrContains(host, ':') && !(host.front() == '[' && host.back() == ']')) {
    return absl::StrCat("server address \"", address, "\": an IPv6 host stands in brackets, [", host, "]:", port);
  }
  return "";
}

// Not by the text's beginning: 127.example.org may be anyone's.
bool IsThisMachine(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const std::string host = address.substr(0, address.rfind(':'));
  in_addr ipv4 = {};
  if (inet_pton(AF_INET, host.c_str(), &ipv4) == 1) return ntohl(ipv4.s_addr) >> 24 == 127;
  return host == "localhost" || host == "[::1]";
}

}  // namespace lenet::ctl
