// Who may do what: rules that give callers a name and a role.
#ifndef LENET_SERVER_RPC_ACCESS_H_
#define LENET_SERVER_RPC_ACCESS_H_

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/rpc/users.h"
#include "trainer/base/mutex.h"

namespace lenet {

// Each may do what those before it may.
enum class Role {
  kNone,
  kViewer,     // read jobs, metrics, data sets
  kSubmitter,  // start jobs; stop, pause, resume and delete its own
  kAdmin,      // those of others, too
};

absl::string_view RoleName(Role role);

// What a connection and a call tell of who makes it.
struct Credentials {
  std::string client;                          // as Job.client without rules: "127.0.0.1", "unix:alice"
  std::shared_ptr<const User> user;            // at the other end of a unix socket; null elsewhere
  std::optional<std::string> token;            // from "authorization: Bearer TOKEN"
  std::vector<std::string> certificate_names;  // common name and alternative names of a certificate that was verified
};

struct Caller {
  std::string name;  // what Job.client becomes
  Role role = Role::kNone;
};

// A file with a rule a line; empty lines, and those that begin with #, are none:
//   token NAME ROLE sha256:HEX    whoever brings a token with this hash
//   certificate NAME ROLE         whose certificate has NAME as its common name or an alternative one
//   user NAME ROLE                this user of the machine on a unix socket
//   group NAME ROLE               the members of this group there; of several rules, the one with the highest role
//   unix ROLE                     all others there; without this rule: admin
//   anyone ROLE                   everyone else; without this rule they are turned away
// An earlier one of these goes before a later one. ROLE is viewer, submitter or admin. Names of tokens are NameOk,
// those of certificates are not "unix" and do not begin with "unix:". Users and groups may be told by their ids, which
// go before names.
class AccessRules {
 public:
  // INVALID_ARGUMENT with file, line and reason.
  static absl::StatusOr<AccessRules> Parse(absl::string_view text, const std::string& file);

  // UNAUTHENTICATED for a token that is not known, and where no rule gives a role.
  absl::StatusOr<Caller> Identify(const Credentials& credentials) const;

 private:
  Role RoleOf(const User& user) const;

  std::map<std::string, Caller> tokens_;  // by their hash in hexadecimal digits
  std::map<std::string, Caller> certificates_;
  std::map<std::string, Role> users_;  // by names and ids
  std::map<std::string, Role> groups_;
  Role unix_ = Role::kAdmin;
  Role anyone_ = Role::kNone;
};

// The rules that hold now. Safe from any thread.
class Access {
 public:
  // Until rules are loaded everyone is an admin.
  Access() = default;

  // Takes the rules of the file in the place of those before; on an error those stay.
  absl::Status Load(const std::filesystem::path& file) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<Caller> Identify(const Credentials& credentials) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const AccessRules> rules_ ABSL_GUARDED_BY(mutex_);  // or null
};

// 1 to 64 letters, digits, '-' and '_', the first a letter: no address and no other name of a client looks so, but for
// "unix", which is not OK.
bool NameOk(absl::string_view name);

// A new token of 256 random bits, and the rule that a file needs for it.
struct NewToken {
  std::string token;
  std::string rule;
};
absl::StatusOr<NewToken> MakeToken(absl::string_view name, Role role);

// INVALID_ARGUMENT for a word that names none of the three.
absl::StatusOr<Role> ParseRole(absl::string_view word);

}  // namespace lenet

#endif  // LENET_SERVER_RPC_ACCESS_H_
