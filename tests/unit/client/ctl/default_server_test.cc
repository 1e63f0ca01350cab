#include "client/ctl/default_server.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace lenet::ctl {
namespace {

namespace fs = std::filesystem;

// NOLINTBEGIN(concurrency-mt-unsafe): there is one thread
class DefaultServerTest : public ::testing::Test {
 protected:
  DefaultServerTest() {
    char name[] = "/tmp/lenet-default-XXXXXX";
    folder_ = ::mkdtemp(name);
    for (const char* variable : {"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME"}) ::unsetenv(variable);
  }
  ~DefaultServerTest() override { fs::remove_all(folder_); }

  // "unix:" and the path.
  static std::string MakeSocket(const fs::path& path) {
    fs::create_directories(path.parent_path());
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ::close(fd);
    return "unix:" + path.string();
  }

  fs::path folder_;
};

TEST_F(DefaultServerTest, IsTheMachinesWithoutOneOfTheUsersOwn) {
  EXPECT_EQ(DefaultServer(), "unix:/run/lenet/lenetd.sock");
  ::setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  EXPECT_EQ(DefaultServer(), "unix:/run/lenet/lenetd.sock");
  // A file is no server.
  fs::create_directories(folder_ / "lenet");
  std::ofstream(folder_ / "lenet/lenetd.sock") << "x";
  EXPECT_EQ(DefaultServer(), "unix:/run/lenet/lenetd.sock");
}

TEST_F(DefaultServerTest, IsTheUsersOwnWhereItsSocketLies) {
  ::setenv("HOME", folder_.c_str(), 1);
  const std::string home = MakeSocket(folder_ / ".local/state/lenetd/lenetd.sock");
  EXPECT_EQ(DefaultServer(), home);
  ::setenv("XDG_STATE_HOME", (folder_ / "state").c_str(), 1);
  EXPECT_EQ(DefaultServer(), "unix:/run/lenet/lenetd.sock");
  const std::string state = MakeSocket(folder_ / "state/lenetd/lenetd.sock");
  EXPECT_EQ(DefaultServer(), state);
  ::setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  EXPECT_EQ(DefaultServer(), "unix:/run/lenet/lenetd.sock");
  const std::string runtime = MakeSocket(folder_ / "lenet/lenetd.sock");
  EXPECT_EQ(DefaultServer(), runtime);
}
// NOLINTEND(concurrency-mt-unsafe)

}  // namespace
}  // namespace lenet::ctl
