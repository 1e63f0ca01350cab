#include "server/serving_addresses.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/listener.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/server/environment_test.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ServingAddressesTest : public EnvironmentTest {
 protected:
  ServingAddressesTest() { Set("RUNTIME_DIRECTORY", (folder_.path() / "run").string()); }

  std::string Unix(const std::string& name) const { return "unix:" + (folder_.path() / name).string(); }

  // A socket that listens there.
  std::unique_ptr<Listener> Listening(const std::string& name) const {
    return Listener::Bind(*ParseListenAddress(Unix(name))).value();
  }

  TempFolder folder_;
  ServerConfig config_;
};

// The first descriptor that has this address.
Descriptor SocketOf(const Listener& listener) {
  for (int fd = 0; fd < 1000; ++fd) {
    const absl::StatusOr<std::string> address = AddressOfSocket(Descriptor{fd});
    if (address.ok() && *address == listener.address()) return Descriptor{fd};
  }
  return Descriptor{-1};
}

TEST_F(ServingAddressesTest, TheDefaultStandsAloneUnlessSomethingIsNamed) {
  EXPECT_THAT(ChooseAddresses(config_, {})->bound, ElementsAre(Unix("run/lenetd.sock")));
  config_.listen = {"a:1", "unix:/b"};
  EXPECT_THAT(ChooseAddresses(config_, {})->all(), ElementsAre("a:1", "unix:/b"));
}

TEST_F(ServingAddressesTest, PassedSocketsReplaceTheDefaultAloneAndAreNotBoundTwice) {
  const auto one = Listening("one");
  const auto two = Listening("two");
  const std::vector<Descriptor> passed = {SocketOf(*one), SocketOf(*two)};
  absl::StatusOr<ServingAddresses> addresses = ChooseAddresses(config_, passed);
  EXPECT_THAT(addresses->passed, ElementsAre(Unix("one"), Unix("two")));
  EXPECT_THAT(addresses->bound, IsEmpty());
  config_.listen = {"a:1", Unix("two"), DefaultListen()};
  addresses = ChooseAddresses(config_, passed);
  EXPECT_THAT(addresses->bound, ElementsAre("a:1", DefaultListen()));
  EXPECT_THAT(addresses->all(), ElementsAre(Unix("one"), Unix("two"), "a:1", DefaultListen()));
  EXPECT_THAT(std::string(ChooseAddresses(config_, {Descriptor{-1}}).status().message()),
              HasSubstr("the socket that was passed to serve on"));
}

TEST_F(ServingAddressesTest, EachAddressIsAskedForTls) {
  EXPECT_TRUE(CheckAccess(config_, {"unix:/a", "127.0.0.1:1", "[::1]:1"}).ok());
  const absl::Status refused = CheckAccess(config_, {"unix:/a", "127.0.0.1:1", "0.0.0.0:2"});
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--listen 0.0.0.0:2: other machines reach this address"));
  config_.insecure = true;
  EXPECT_TRUE(CheckAccess(config_, {"unix:/a", "0.0.0.0:2"}).ok());
}

TEST_F(ServingAddressesTest, TheDefaultsFolderIsMadeForThisUserAlone) {
  const mode_t before = ::umask(0);
  EXPECT_TRUE(MakeDefaultSocketFolder().ok());
  ::umask(before);
  struct stat info = {};
  ASSERT_EQ(::stat((folder_.path() / "run").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  // One that is there stays as it is.
  ASSERT_EQ(::chmod((folder_.path() / "run").c_str(), 0711), 0);
  EXPECT_TRUE(MakeDefaultSocketFolder().ok());
  ASSERT_EQ(::stat((folder_.path() / "run").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0711u);
  // Those above it are made, too.
  Set("RUNTIME_DIRECTORY", (folder_.path() / "not" / "yet").string());
  EXPECT_TRUE(MakeDefaultSocketFolder().ok());
  Set("RUNTIME_DIRECTORY", "/proc/none/lenet");
  EXPECT_THAT(std::string(MakeDefaultSocketFolder().message()),
              AllOf(HasSubstr("/proc/none"), HasSubstr("--listen names another address")));
}

}  // namespace
}  // namespace lenet
