#include "server/serving_addresses.h"

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/listener.h"
#include "server/rpc/tls.h"
#include "trainer/base/file.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr char kGroup[] = "lenet";
constexpr size_t kGroupBytes = 1 << 20;  // of its entry, with all members

bool IsUnix(const std::string& text) {
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(text);
  return address.ok() && address->is_unix();
}

}  // namespace

std::vector<std::string> ServingAddresses::all() const {
  std::vector<std::string> addresses = passed;
  addresses.insert(addresses.end(), bound.begin(), bound.end());
  return addresses;
}

absl::StatusOr<ServingAddresses> ChooseAddresses(const ServerConfig& config, const std::vector<Descriptor>& passed) {
  ServingAddresses addresses;
  for (const Descriptor socket : passed) {
    absl::StatusOr<std::string> address = AddressOfSocket(socket);
    if (!address.ok()) return Annotate(address.status(), "the socket that was passed to serve on");
    addresses.passed.push_back(*std::move(address));
  }
  if (config.listen.empty() && passed.empty()) addresses.bound = {DefaultListen()};
  for (const std::string& address : config.listen) {
    const auto found = std::find(addresses.passed.begin(), addresses.passed.end(), address);
    if (found == addresses.passed.end()) addresses.bound.push_back(address);
  }
  return addresses;
}

absl::Status CheckAccess(const ServerConfig& config, const std::vector<std::string>& addresses) {
  LENET_RETURN_IF_ERROR(CheckTlsFiles(config.tls));
  if (config.tls.any()) {
    if (std::all_of(addresses.begin(), addresses.end(), IsUnix)) {
      Log(LogLevel::kWarning, "--tls-cert: no TLS is spoken, as no address is one of TCP; --listen host:port adds one");
    }
    return absl::OkStatus();
  }
  if (config.insecure) return absl::OkStatus();
  for (const std::string& address : addresses) {
    if (IsLocalAddress(address)) continue;
    // Whoever reaches it can start and stop jobs.
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", address, ": other machines reach this address, and it would be without TLS; give ",
                     "--tls-cert and --tls-key, or --insecure to serve all who reach it"));
  }
  return absl::OkStatus();
}

bool IsLocalAddress(const std::string& text) {
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(text);
  return address.ok() && IsLocal(*address);
}

absl::Status MakeDefaultSocketFolder() {
  LENET_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(DefaultListen()));
  const std::filesystem::path folder = std::filesystem::path(address.unix_path).parent_path();
  const auto failed = [&folder] {
    return absl::UnavailableError(absl::StrCat("cannot make the folder of the socket, '", folder.string(),
                                               "': ", std::generic_category().message(errno),
                                               "; --listen names another address"));
  };
  LENET_RETURN_IF_ERROR(
      Annotate(MakeFolders(folder.parent_path()), "the folder of the socket; --listen names another address"));
  if (::mkdir(folder.c_str(), 0700) != 0) return errno == EEXIST ? absl::OkStatus() : failed();
  if (folder == kSharedRuntimeFolder && ::chmod(folder.c_str(), 0755) != 0) return failed();
  return absl::OkStatus();
}

std::optional<gid_t> UnixSocketGroup() {
  if (::geteuid() != 0) return std::nullopt;
  std::vector<char> buffer(kGroupBytes);
  group entry = {};
  group* found = nullptr;
  if (::getgrnam_r(kGroup, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return std::nullopt;
  return found->gr_gid;
}

}  // namespace lenet
