#include "server/rpc/access.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"
#include "trainer/base/file.h"

namespace lenet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

AccessRules Parsed(const std::string& text) {
  absl::StatusOr<AccessRules> rules = AccessRules::Parse(text, "rules");
  EXPECT_TRUE(rules.ok()) << rules.status();
  return rules.value_or(AccessRules());
}

NewToken Made(const std::string& name, Role role) {
  absl::StatusOr<NewToken> token = MakeToken(name, role);
  EXPECT_TRUE(token.ok()) << token.status();
  return token.value_or(NewToken());
}

void ExpectCaller(const absl::StatusOr<Caller>& caller, const std::string& name, Role role) {
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->name, name);
  EXPECT_EQ(caller->role, role);
}

TEST(AccessTest, ATokenGivesItsNameAndRoleAndOthersNone) {
  const NewToken alice = Made("alice", Role::kSubmitter);
  const NewToken bob = Made("bob", Role::kViewer);
  const AccessRules rules = Parsed("# people\n\n" + alice.rule + "\r\n\t" + bob.rule);
  ExpectCaller(rules.Identify({.client = "10.0.0.1", .token = alice.token}), "alice", Role::kSubmitter);
  ExpectCaller(rules.Identify({.client = "unix:7", .token = bob.token}), "bob", Role::kViewer);
  for (const std::string& wrong : {std::string(), alice.token + "x", alice.token.substr(1), alice.rule}) {
    // Also where the client would have a role without it.
    const absl::Status status = rules.Identify({.client = "unix:7", .token = wrong}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << wrong;
    if (!wrong.empty()) {
      EXPECT_THAT(std::string(status.message()), Not(HasSubstr(wrong)));
    }
  }
}

TEST(AccessTest, TokensAreAllDifferentAndNotInTheirRules) {
  std::set<std::string> tokens;
  for (int i = 0; i < 100; ++i) {
    const NewToken made = Made("someone", Role::kAdmin);
    EXPECT_TRUE(tokens.insert(made.token).second);
    EXPECT_THAT(made.rule, Not(HasSubstr(made.token)));
    EXPECT_GE(made.token.size(), 43u);  // 256 bits
  }
}

TEST(AccessTest, CertificatesAreKnownByAnyOfTheirNames) {
  const AccessRules rules = Parsed("certificate ops.example admin\ncertificate dash viewer\n");
  ExpectCaller(rules.Identify({.client = "10.0.0.1", .certificate_names = {"x", "ops.example"}}), "ops.example",
               Role::kAdmin);
  ExpectCaller(rules.Identify({.client = "10.0.0.1", .certificate_names = {"dash"}}), "dash", Role::kViewer);
  EXPECT_EQ(rules.Identify({.client = "10.0.0.1", .certificate_names = {"y"}}).status().code(),
            absl::StatusCode::kUnauthenticated);
}

// At the other end of a unix socket.
Credentials OnSocket(User user) {
  return {.client = user.client(), .user = std::make_shared<const User>(std::move(user))};
}

TEST(AccessTest, WithoutTokenOrCertificateTheSocketDecides) {
  const AccessRules plain = Parsed("");
  ExpectCaller(plain.Identify(OnSocket({.id = 7})), "unix:7", Role::kAdmin);
  EXPECT_EQ(plain.Identify({.client = "127.0.0.1"}).status().code(), absl::StatusCode::kUnauthenticated);
  const AccessRules open = Parsed("unix submitter\nanyone viewer");
  ExpectCaller(open.Identify(OnSocket({.id = 7, .name = "ann"})), "unix:ann", Role::kSubmitter);
  ExpectCaller(open.Identify({.client = "127.0.0.1"}), "127.0.0.1", Role::kViewer);
}

TEST(AccessTest, OnTheSocketATokenGoesBeforeTheUserThenTheGroupThenTheRest) {
  const NewToken token = Made("robot", Role::kViewer);
  const AccessRules rules = Parsed(token.rule + R"(
unix viewer
group staff submitter
group 70 admin
group guests viewer
user ann viewer
user 0012 admin
)");
  const User::Group staff = {.id = 50, .name = "staff"};
  const User::Group guests = {.id = 60, .name = "guests"};
  const User::Group wheel = {.id = 70, .name = "wheel"};
  // A user's rule counts also where a group has a higher role.
  ExpectCaller(rules.Identify(OnSocket({.id = 10, .name = "ann", .groups = {staff, wheel}})), "unix:ann",
               Role::kViewer);
  ExpectCaller(rules.Identify(OnSocket({.id = 12, .name = "bob"})), "unix:bob", Role::kAdmin);
  ExpectCaller(rules.Identify(OnSocket({.id = 12})), "unix:12", Role::kAdmin);
  ExpectCaller(rules.Identify(OnSocket({.id = 13, .name = "cat", .groups = {guests, staff, guests}})), "unix:cat",
               Role::kSubmitter);
  ExpectCaller(rules.Identify(OnSocket({.id = 13, .name = "cat", .groups = {staff, wheel, guests}})), "unix:cat",
               Role::kAdmin);
  ExpectCaller(rules.Identify(OnSocket({.id = 14, .name = "dan", .groups = {{.id = 80, .name = "users"}}})), "unix:dan",
               Role::kViewer);
  Credentials with_token = OnSocket({.id = 12, .name = "bob"});
  with_token.token = token.token;
  ExpectCaller(rules.Identify(with_token), "robot", Role::kViewer);
  // Neither a name nor an id is the other's: group 50 has no rule of its own, user 70 none either.
  ExpectCaller(rules.Identify(OnSocket({.id = 70, .groups = {{.id = 12}}})), "unix:70", Role::kViewer);
  // Who is not on the socket has no user's role.
  EXPECT_EQ(rules.Identify({.client = "unix:ann"}).status().code(), absl::StatusCode::kUnauthenticated);
}

TEST(AccessTest, AnIdGoesBeforeAName) {
  const AccessRules rules = Parsed("user ann viewer\nuser 10 submitter");
  ExpectCaller(rules.Identify(OnSocket({.id = 10, .name = "ann"})), "unix:ann", Role::kSubmitter);
}

TEST(AccessTest, ABadLineIsNamed) {
  const std::string hash = "sha256:" + std::string(64, 'a');
  const std::vector<std::pair<std::string, std::string>> lines = {
      {"tokens a viewer " + hash, "begins no rule"},
      {"token a viewer", "has 4 words, this one 3"},
      {"token a root " + hash, "role \"root\" is none of viewer, submitter, admin"},
      {"token 1a viewer " + hash, "\"1a\""},
      {"token unix viewer " + hash, "\"unix\""},
      {"token a viewer " + hash + "a", "64 hexadecimal digits"},
      {"token a viewer sha256:" + std::string(64, 'g'), "64 hexadecimal digits"},
      {"certificate a", "has 3 words, this one 2"},
      {"unix", "has 2 words, this one 1"},
      {"user ann", "a rule \"user\" has 3 words, this one 2"},
      {"group staff a viewer", "a rule \"group\" has 3 words, this one 4"},
      {"user ann boss", "role \"boss\""},
      {"user unix:ann viewer", "\"unix:ann\": the name of a user or group has no ':'"},
      {"user 4294967295 viewer", "id 4294967295: must be at most 4294967294"},
      {"group 99999999999 viewer", "id 99999999999: must be at most 4294967294"},
      {"user ann viewer\nuser ann admin", "an earlier line"},
      {"user 7 viewer\nuser 007 admin", "an earlier line"},
      {"group staff viewer\ngroup staff admin", "an earlier line"},
      {"certificate unix:ann viewer", "\"unix:ann\": the names of users on unix sockets"},
      {"certificate unix viewer", "\"unix\": the names of users on unix sockets"},
      {"token unix:ann viewer " + hash, "\"unix:ann\""},
      {"token a viewer " + hash + "\ntoken b admin " + hash, "an earlier line"},
      {"certificate a viewer\ncertificate a admin", "an earlier line"},
  };
  for (const auto& [text, reason] : lines) {
    const absl::Status status = AccessRules::Parse("unix viewer\n" + text, "file").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    const std::string line = text.find('\n') == std::string::npos ? "file:2: " : "file:3: ";
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(line), HasSubstr(reason))) << text;
  }
}

TEST(AccessTest, WithoutRulesEveryoneIsAnAdminAndABadFileChangesNothing) {
  TempFolder folder;
  const std::filesystem::path file = folder.path() / "rules";
  const auto write = [&](const std::string& text) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
    ASSERT_TRUE(WriteFileAtomic(file, std::span(&bytes, 1)).ok());
  };
  Access access;
  ExpectCaller(access.Identify({.client = "10.0.0.1"}), "10.0.0.1", Role::kAdmin);
  EXPECT_FALSE(access.Load(file).ok());
  ExpectCaller(access.Identify({.client = "10.0.0.1"}), "10.0.0.1", Role::kAdmin);
  write("anyone viewer");
  ASSERT_TRUE(access.Load(file).ok());
  ExpectCaller(access.Identify({.client = "10.0.0.1"}), "10.0.0.1", Role::kViewer);
  write("anyone nothing");
  EXPECT_FALSE(access.Load(file).ok());
  ExpectCaller(access.Identify({.client = "10.0.0.1"}), "10.0.0.1", Role::kViewer);
}

}  // namespace
}  // namespace lenet
