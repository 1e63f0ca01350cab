#include "server/rpc/users.h"

#include <grp.h>
#include <pwd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr size_t kEntryBytes = 1 << 20;  // of a group's entry, with all members
constexpr int kFirstGroups = 64;         // room for so many at the first attempt
constexpr int kMaxGroups = 65536;        // NGROUPS_MAX of Linux

std::string Usable(absl::string_view name) {
  const bool visible = std::all_of(name.begin(), name.end(), absl::ascii_isgraph);
  const bool number = std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
  return visible && !number ? std::string(name) : "";
}

// Of a get..._r function; `what` is "user 5".
absl::Status StatusOf(int error, absl::string_view what) {
  // Databases that are not there have no such entry; getpwuid(3) tells of the others.
  if (error == 0 || error == ENOENT || error == ESRCH) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot look up ", what, ": ", std::generic_category().message(error)));
}

std::vector<gid_t> GroupsOf(const passwd& entry) {
  std::vector<gid_t> ids;
  for (int room = kFirstGroups; room <= kMaxGroups; room *= 2) {
    ids.resize(static_cast<size_t>(room));
    int count = room;
    if (::getgrouplist(entry.pw_name, entry.pw_gid, ids.data(), &count) >= 0) {
      ids.resize(static_cast<size_t>(count));
      break;
    }
  }
  return ids;
}

}  // namespace

std::string User::client() const { return name.empty() ? absl::StrCat("unix:", id) : absl::StrCat("unix:", name); }

absl::StatusOr<User> LookUpUser(uid_t id) {
  User user = {.id = id};
  std::vector<char> buffer(kEntryBytes);
  passwd entry = {};
  passwd* found = nullptr;
  LENET_RETURN_IF_ERROR(
      StatusOf(::getpwuid_r(id, &entry, buffer.data(), buffer.size(), &found), absl::StrCat("user ", id)));
  if (found == nullptr) return user;
  user.name = Usable(entry.pw_name);
  for (const gid_t group_id : GroupsOf(entry)) {
    group group_entry = {};
    group* found_group = nullptr;
    LENET_RETURN_IF_ERROR(StatusOf(::getgrgid_r(group_id, &group_entry, buffer.data(), buffer.size(), &found_group),
                                   absl::StrCat("group ", group_id)));
    user.groups.push_back({.id = group_id, .name = found_group == nullptr ? "" : Usable(group_entry.gr_name)});
  }
  return user;
}

std::optional<uid_t> PeerOf(Descriptor connection) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  // A socket of another kind says that its peer is the overflow id.
  if (::getsockopt(connection.number, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX) {
    return std::nullopt;
  }
  ucred peer = {};
  size = sizeof(peer);
  if (::getsockopt(connection.number, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.uid;
}

absl::StatusOr<std::shared_ptr<const User>> Users::Find(uid_t id) {
  if (std::shared_ptr<const User> user = Known(id); user != nullptr) return user;
  MutexLock looking_up(&looking_up_);
  if (std::shared_ptr<const User> user = Known(id); user != nullptr) return user;
  LENET_ASSIGN_OR_RETURN(User looked_up, look_up_(id));
  auto user = std::make_shared<const User>(std::move(looked_up));
  MutexLock lock(&mutex_);
  known_[id] = user;
  return user;
}

void Users::Refresh() {
  MutexLock looking_up(&looking_up_);
  UserMap known = AllKnown();
  for (auto& [id, user] : known) {
    absl::StatusOr<User> looked_up = look_up_(id);
    if (looked_up.ok()) {
      user = std::make_shared<const User>(*std::move(looked_up));
    } else {
      Log(LogLevel::kWarning, absl::StrCat("the name and groups of ", user->client(),
                                           " stay as they were: ", looked_up.status().message()));
    }
  }
  MutexLock lock(&mutex_);
  known_ = std::move(known);
}

std::shared_ptr<const User> Users::Known(uid_t id) const {
  MutexLock lock(&mutex_);
  const auto found = known_.find(id);
  return found == known_.end() ? nullptr : found->second;
}

Users::UserMap Users::AllKnown() const {
  MutexLock lock(&mutex_);
  return known_;
}

}  // namespace lenet
