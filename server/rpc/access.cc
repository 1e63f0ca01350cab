#include "server/rpc/access.h"

#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "trainer/base/file.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr int64_t kMaxFileBytes = 4 << 20;
constexpr size_t kMaxName = 64;
constexpr size_t kTokenBytes = 32;
constexpr char kTokenPrefix[] = "lenet_";  // by which scanners for secrets know it
constexpr char kHashPrefix[] = "sha256:";
constexpr uint32_t kMaxId = 0xfffffffe;  // of a user or group; the next one is none

std::string Hash(absl::string_view token) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest = {};
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

absl::StatusOr<std::string> ParseHash(absl::string_view word) {
  const bool prefixed = absl::ConsumePrefix(&word, kHashPrefix);
  if (!prefixed || word.size() != 2 * SHA256_DIGEST_LENGTH ||
      !std::all_of(word.begin(), word.end(), absl::ascii_isxdigit)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a token's hash is ", kHashPrefix, " and ", 2 * SHA256_DIGEST_LENGTH, " hexadecimal digits"));
  }
  return absl::AsciiStrToLower(word);
}

// Adds a rule under a key that none has yet.
template <typename Value>
absl::Status Add(std::map<std::string, Value>* rules, const std::string& key, Value value) {
  if (rules->emplace(key, std::move(value)).second) return absl::OkStatus();
  return absl::InvalidArgumentError("an earlier line has a rule for the same");
}

// Of a user or a group: a name, or an id without leading zeros.
absl::StatusOr<std::string> ParseAccount(const std::string& word) {
  if (std::all_of(word.begin(), word.end(), absl::ascii_isdigit)) {
    uint32_t id = 0;
    if (absl::SimpleAtoi(word, &id) && id <= kMaxId) return absl::StrCat(id);
    return absl::InvalidArgumentError(absl::StrCat("id ", word, ": must be at most ", kMaxId));
  }
  if (!absl::StrContains(word, ':')) return word;
  return absl::InvalidArgumentError(absl::StrCat("\"", word, "\": the name of a user or group has no ':'"));
}

// The rule's role; nullptr: there is none.
const Role* FindRole(const std::map<std::string, Role>& rules, uint32_t id, const std::string& name) {
  auto found = rules.find(absl::StrCat(id));
  if (found == rules.end()) found = rules.find(name);
  return found == rules.end() ? nullptr : &found->second;
}

}  // namespace

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kNone:
      return "none";
    case Role::kViewer:
      return "viewer";
    case Role::kSubmitter:
      return "submitter";
    case Role::kAdmin:
      return "admin";
  }
  return "unknown";
}

absl::StatusOr<Role> ParseRole(absl::string_view word) {
  for (const Role role : {Role::kViewer, Role::kSubmitter, Role::kAdmin}) {
    if (word == RoleName(role)) return role;
  }
  return absl::InvalidArgumentError(absl::StrCat("role \"", word, "\" is none of viewer, submitter, admin"));
}

bool NameOk(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxName && name != "unix" && absl::ascii_isalpha(name.front()) &&
         std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; });
}

absl::StatusOr<AccessRules> AccessRules::Parse(absl::string_view text, const std::string& file) {
  AccessRules rules;
  const auto parse = [&rules](const std::vector<std::string>& words) -> absl::Status {
    const std::string& kind = words.front();
    const size_t count = kind == "token"                                              ? 4
                         : kind == "certificate" || kind == "user" || kind == "group" ? 3
                         : kind == "unix" || kind == "anyone"                         ? 2
                                                                                      : 0;
    if (count == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", kind, "\" begins no rule; token, certificate, user, group, unix and anyone do"));
    }
    if (words.size() != count) {
      return absl::InvalidArgumentError(
          absl::StrCat("a rule \"", kind, "\" has ", count, " words, this one ", words.size()));
    }
    LENET_ASSIGN_OR_RETURN(const Role role, ParseRole(words[count == 2 ? 1 : 2]));
    if (kind == "unix") {
      rules.unix_ = role;
    } else if (kind == "anyone") {
      rules.anyone_ = role;
    } else if (kind == "user" || kind == "group") {
      LENET_ASSIGN_OR_RETURN(const std::string account, ParseAccount(words[1]));
      return Add(kind == "user" ? &rules.users_ : &rules.groups_, account, role);
    } else if (kind == "certificate") {
      // A job's owner of that form is a user.
      if (words[1] == "unix" || absl::StartsWith(words[1], "unix:")) {
        return absl::InvalidArgumentError(
            absl::StrCat("\"", words[1], "\": the names of users on unix sockets look so, a certificate's must not"));
      }
      return Add(&rules.certificates_, words[1], Caller{.name = words[1], .role = role});
    } else {
      if (!NameOk(words[1])) {
        return absl::InvalidArgumentError(
            absl::StrCat("\"", words[1], "\" must be 1 to ", kMaxName,
                         " letters, digits, '-' and '_', begin with a letter, and not be \"unix\""));
      }
      LENET_ASSIGN_OR_RETURN(const std::string hash, ParseHash(words[3]));
      return Add(&rules.tokens_, hash, Caller{.name = words[1], .role = role});
    }
    return absl::OkStatus();
  };
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words.front().front() == '#') continue;
    if (const absl::Status status = parse(words); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(file, ":", number, ": ", status.message()));
    }
  }
  return rules;
}

absl::StatusOr<Caller> AccessRules::Identify(const Credentials& credentials) const {
  if (credentials.token) {
    const auto found = tokens_.find(Hash(*credentials.token));
    if (found == tokens_.end()) return absl::UnauthenticatedError("the token is not known here");
    return found->second;
  }
  for (const std::string& name : credentials.certificate_names) {
    if (const auto found = certificates_.find(name); found != certificates_.end()) return found->second;
  }
  if (credentials.user != nullptr) return Caller{.name = credentials.client, .role = RoleOf(*credentials.user)};
  if (anyone_ == Role::kNone) {
    return absl::UnauthenticatedError(credentials.certificate_names.empty()
                                          ? "this server asks for a token"
                                          : "this server has no rule for the certificate, and there is no token");
  }
  return Caller{.name = credentials.client, .role = anyone_};
}

Role AccessRules::RoleOf(const User& user) const {
  if (const Role* const role = FindRole(users_, user.id, user.name); role != nullptr) return *role;
  Role highest = Role::kNone;
  for (const User::Group& group : user.groups) {
    if (const Role* const role = FindRole(groups_, group.id, group.name); role != nullptr) {
      highest = std::max(highest, *role);
    }
  }
  return highest == Role::kNone ? unix_ : highest;
}

absl::Status Access::Load(const std::filesystem::path& file) {
  LENET_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxFileBytes));
  LENET_ASSIGN_OR_RETURN(AccessRules rules, AccessRules::Parse(text, file.string()));
  auto loaded = std::make_shared<const AccessRules>(std::move(rules));
  MutexLock lock(&mutex_);
  rules_ = std::move(loaded);
  return absl::OkStatus();
}

absl::StatusOr<Caller> Access::Identify(const Credentials& credentials) const {
  std::shared_ptr<const AccessRules> rules;
  {
    MutexLock lock(&mutex_);
    rules = rules_;
  }
  if (rules == nullptr) return Caller{.name = credentials.client, .role = Role::kAdmin};
  return rules->Identify(credentials);
}

absl::StatusOr<NewToken> MakeToken(absl::string_view name, Role role) {
  if (!NameOk(name)) return BadValue("name", name, "letters, digits, '-' and '_', a letter first");
  std::array<unsigned char, kTokenBytes> random = {};
  if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1) {
    return absl::InternalError("there are no random numbers to be had");
  }
  NewToken made;
  made.token = absl::StrCat(kTokenPrefix, absl::WebSafeBase64Escape(absl::string_view(
                                              reinterpret_cast<const char*>(random.data()), random.size())));
  made.rule = absl::StrCat("token ", name, " ", RoleName(role), " ", kHashPrefix, Hash(made.token));
  return made;
}

}  // namespace lenet
