// The addresses of servers.
#ifndef LENET_CLIENT_CTL_ADDRESS_H_
#define LENET_CLIENT_CTL_ADDRESS_H_

#include <string>

namespace lenet::ctl {

// HOST:PORT, [IPv6]:PORT or unix:PATH; gives what is wrong, or nothing.
std::string CheckAddress(const std::string& address);

// Whether an address that is right is one that no network carries.
bool IsThisMachine(const std::string& address);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_ADDRESS_H_
