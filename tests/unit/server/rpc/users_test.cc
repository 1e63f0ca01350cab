#include "server/rpc/users.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/server_under_test.h"
#include "trainer/base/log.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LookUpUserTest, TellsNameAndGroups) {
  const absl::StatusOr<User> root = LookUpUser(0);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(root->name, "root");
  EXPECT_EQ(root->client(), "unix:root");
  ASSERT_FALSE(root->groups.empty());
  EXPECT_EQ(root->groups[0].id, 0u);
  EXPECT_EQ(root->groups[0].name, "root");
}

TEST(LookUpUserTest, AnIdThatNobodyHasIsNoError) {
  const absl::StatusOr<User> user = LookUpUser(4'000'000'123);
  ASSERT_TRUE(user.ok()) << user.status();
  EXPECT_EQ(user->client(), "unix:4000000123");
  EXPECT_TRUE(user->groups.empty());
}

TEST(PeerOfTest, IsTheUserOfAUnixSocketAlone) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueDescriptor here(Descriptor{ends[0]});
  const UniqueDescriptor there(Descriptor{ends[1]});
  EXPECT_EQ(PeerOf(here.get()), ::geteuid());
  const UniqueDescriptor tcp(Descriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)});
  EXPECT_EQ(PeerOf(tcp.get()), std::nullopt);
  EXPECT_EQ(PeerOf(Descriptor{-1}), std::nullopt);
}

// A database whose users' names change with each look-up.
class UsersTest : public ::testing::Test {
 protected:
  ~UsersTest() override { SetLogSink(nullptr); }

  absl::StatusOr<User> LookUp(uid_t id) {
    const int number = ++look_ups_;
    if (fails_) return absl::UnavailableError("the directory is away");
    return User{.id = id, .name = absl::StrCat("user", number)};
  }

  std::string NameOf(uid_t id) {
    const absl::StatusOr<std::shared_ptr<const User>> user = users_.Find(id);
    return user.ok() ? (*user)->name : std::string(user.status().message());
  }

  std::atomic<int> look_ups_{0};
  std::atomic<bool> fails_{false};
  Users users_{[this](uid_t id) { return LookUp(id); }};
};

TEST_F(UsersTest, OneIsLookedUpOnceUntilARefresh) {
  EXPECT_EQ(NameOf(5), "user1");
  EXPECT_EQ(NameOf(6), "user2");
  EXPECT_EQ(NameOf(5), "user1");
  users_.Refresh();
  EXPECT_EQ(look_ups_, 4);
  EXPECT_EQ(NameOf(5), "user3");
  EXPECT_EQ(NameOf(6), "user4");
  EXPECT_EQ(look_ups_, 4);
}

TEST_F(UsersTest, AFailureIsTriedAgainAndTakesNothingAway) {
  std::vector<std::string> lines;
  SetLogSink([&lines](LogLevel, absl::string_view line) { lines.emplace_back(line); });
  EXPECT_EQ(NameOf(5), "user1");
  fails_ = true;
  EXPECT_EQ(NameOf(6), "the directory is away");
  users_.Refresh();
  EXPECT_THAT(lines, ElementsAre(HasSubstr("unix:user1 stay as they were: the directory is away")));
  EXPECT_EQ(NameOf(5), "user1");
  fails_ = false;
  EXPECT_EQ(NameOf(6), "user4");
  users_.Refresh();
  EXPECT_EQ(NameOf(5), "user5");
}

TEST_F(UsersTest, ManyAtOnceShareOneLookUp) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this] {
      for (uid_t id = 1; id <= 50; ++id) NameOf(id);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(look_ups_, 50);
}

}  // namespace
}  // namespace lenet
