// The users of this machine, by whom connections over unix sockets are made.
#ifndef LENET_SERVER_RPC_USERS_H_
#define LENET_SERVER_RPC_USERS_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/base/descriptor.h"
#include "trainer/base/mutex.h"

namespace lenet {

// What the system's databases (passwd, group) tell of a user. Names of digits alone, which an id could be taken for,
// and those with spaces or other characters than visible ones of ASCII are left out.
struct User {
  struct Group {
    gid_t id = 0;
    std::string name;  // may be empty
  };

  uid_t id = 0;
  std::string name;           // may be empty
  std::vector<Group> groups;  // the primary and the supplementary ones; none if the databases do not have the user

  // As in Job.client: "unix:NAME", or "unix:ID".
  std::string client() const;
};

// UNAVAILABLE, with the system's reason, if it cannot be told; an id that the databases do not have is no error. May
// take as long as they do.
absl::StatusOr<User> LookUpUser(uid_t id);

// The user at the other end of a unix socket as of its connect(); none if that is no such socket.
std::optional<uid_t> PeerOf(Descriptor connection);

// Users that were looked up. Safe from any thread.
class Users {
 public:
  using LookUp = std::function<absl::StatusOr<User>(uid_t)>;
  explicit Users(LookUp look_up = LookUpUser) : look_up_(std::move(look_up)) {}

  // As it was when it was asked for first, or at the last Refresh: only the first time takes long. Errors of the
  // look-up, which the next one tries again.
  absl::StatusOr<std::shared_ptr<const User>> Find(uid_t id) ABSL_LOCKS_EXCLUDED(looking_up_, mutex_);

  // Whether Find takes no time.
  bool Knows(uid_t id) const ABSL_LOCKS_EXCLUDED(mutex_) { return Known(id) != nullptr; }

  // Looks all up again. Who cannot be looked up stays as before, with a warning in the log.
  void Refresh() ABSL_LOCKS_EXCLUDED(looking_up_, mutex_);

 private:
  using UserMap = std::map<uid_t, std::shared_ptr<const User>>;

  std::shared_ptr<const User> Known(uid_t id) const ABSL_LOCKS_EXCLUDED(mutex_);  // or null
  UserMap AllKnown() const ABSL_LOCKS_EXCLUDED(mutex_);

  const LookUp look_up_;
  Mutex looking_up_;  // so that no look-up from before a Refresh comes after it
  mutable Mutex mutex_ ABSL_ACQUIRED_AFTER(looking_up_);
  UserMap known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lenet

#endif  // LENET_SERVER_RPC_USERS_H_
