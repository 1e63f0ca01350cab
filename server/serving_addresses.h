// Where lenetd serves: the addresses of its configuration, and the sockets that a service manager has passed.
#ifndef LENET_SERVER_SERVING_ADDRESSES_H_
#define LENET_SERVER_SERVING_ADDRESSES_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/config.h"
#include "trainer/base/descriptor.h"

namespace lenet {

struct ServingAddresses {
  std::vector<std::string> passed;  // of the sockets that were passed
  std::vector<std::string> bound;   // to be bound beside them

  std::vector<std::string> all() const;
};

// Sockets that were passed stand in place of the default; what the configuration names is served beside them, but for
// an address that one of them has. INVALID_ARGUMENT for a socket that cannot be served on.
absl::StatusOr<ServingAddresses> ChooseAddresses(const ServerConfig& config, const std::vector<Descriptor>& passed);

// INVALID_ARGUMENT, with the first address, unless each is one that this machine alone reaches, or may be served as the
// configuration says; and for TLS files that cannot be used.
absl::Status CheckAccess(const ServerConfig& config, const std::vector<std::string>& addresses);

// Whether this machine alone reaches it; false for what is no address.
bool IsLocalAddress(const std::string& address);

// The folder of DefaultListen(), if it is missing: for all to enter where it is the whole machine's, else for this user
// alone. UNAVAILABLE, with the system's reason.
absl::Status MakeDefaultSocketFolder();

// The group `lenet`, for unix sockets that root makes, if this process is root's and there is such a group.
std::optional<gid_t> UnixSocketGroup();

}  // namespace lenet

#endif  // LENET_SERVER_SERVING_ADDRESSES_H_
