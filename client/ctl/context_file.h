// The file of named contexts: servers, with what reaching each takes.
#ifndef LENET_CLIENT_CTL_CONTEXT_FILE_H_
#define LENET_CLIENT_CTL_CONTEXT_FILE_H_

#include <filesystem>
#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lenet::ctl {

// A value that is not given is empty.
struct Context {
  std::string server;
  bool tls = false;  // a ca or a cert turns it on as well
  std::string ca;
  std::string cert;
  std::string key;
  std::string token_file;

  bool operator==(const Context&) const = default;
};

// With paths, that of a unix: server too, that do not depend on the working folder: relative ones count from `folder`.
Context Resolved(Context context, const std::filesystem::path& folder);

struct Contexts {
  std::string path;              // of the file, for messages
  std::filesystem::path folder;  // what relative paths count from: where the file lies, behind links
  std::string current;           // a name, which a file edited by hand may not have; empty: none
  int current_line = 0;
  std::map<std::string, Context> contexts;  // by name, as written

  // Resolved. NOT_FOUND names the contexts that there are.
  absl::StatusOr<Context> Find(const std::string& name) const;
};

// LENETCTL_CONFIG, or lenet/lenetctl.toml in XDG_CONFIG_HOME or ~/.config; empty where the environment names no place.
std::filesystem::path ContextPath();

// INVALID_ARGUMENT unless `name` is 1 to 64 letters, digits, '-', '_' and '.'.
absl::Status CheckContextName(const std::string& name);

// INVALID_ARGUMENT, naming the key, unless the context can be written to a file.
absl::Status CheckContext(const Context& context);

// A file that does not exist has no contexts. INVALID_ARGUMENT "FILE:LINE: KEY: reason" of what is wrong in it.
absl::StatusOr<Contexts> ReadContexts(const std::filesystem::path& path);

// Reads the file, changes it, and writes it whole, for its owner alone, if `change` gives OK. Of several processes one
// comes after the other. Comments are lost. A symbolic link stays one: the file that it leads to is replaced.
absl::Status ChangeContexts(const std::filesystem::path& path, absl::FunctionRef<absl::Status(Contexts*)> change);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_CONTEXT_FILE_H_
