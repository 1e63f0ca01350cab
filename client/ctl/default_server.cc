#include "client/ctl/default_server.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/ctl/environment.h"

namespace lenet::ctl {
namespace {

namespace fs = std::filesystem;

// Empty if the environment has no such folder.
fs::path OwnFolder() {
  if (const fs::path runtime = Variable("XDG_RUNTIME_DIR"); !runtime.empty()) return runtime / "lenet";
  if (const fs::path state = Variable("XDG_STATE_HOME"); !state.empty()) return state / "lenetd";
  const fs::path home = Variable("HOME");
  return home.empty() ? "" : home / ".local/state/lenetd";
}

}  // namespace

std::string DefaultServer() {
  if (const fs::path folder = OwnFolder(); !folder.empty()) {
    const fs::path socket = folder / "lenetd.sock";
    std::error_code ignored;
    if (fs::is_socket(socket, ignored)) return absl::StrCat("unix:", socket.string());
  }
  return ClientOptions().address;
}

}  // namespace lenet::ctl
