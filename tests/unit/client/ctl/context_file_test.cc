#include "client/ctl/context_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/client/ctl/environment.h"

namespace lenet::ctl {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class ContextFileTest : public ::testing::Test {
 protected:
  ContextFileTest() { ClearEnvironment(); }

  void Write(const std::string& text) { std::ofstream(file_, std::ios::binary) << text; }

  // Changes the file, which must succeed.
  void Set(const fs::path& file, const std::string& name, const Context& context) {
    const absl::Status status = ChangeContexts(file, [&](Contexts* contexts) {
      contexts->contexts[name] = context;
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }

  static std::string Content(const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  static int Mode(const fs::path& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return static_cast<int>(info.st_mode & 07777);
  }

  static std::vector<std::string> Names(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  TempFolder temp_;
  const fs::path folder_ = fs::canonical(temp_.path());
  const fs::path file_ = folder_ / "lenetctl.toml";
};

TEST_F(ContextFileTest, LiesWhereTheEnvironmentSays) {
  // NOLINTBEGIN(concurrency-mt-unsafe): there is one thread
  EXPECT_EQ(ContextPath(), "");
  ::setenv("HOME", "/home/a", 1);
  EXPECT_EQ(ContextPath(), "/home/a/.config/lenet/lenetctl.toml");
  ::setenv("XDG_CONFIG_HOME", "/config", 1);
  EXPECT_EQ(ContextPath(), "/config/lenet/lenetctl.toml");
  ::setenv("LENETCTL_CONFIG", "/file", 1);
  EXPECT_EQ(ContextPath(), "/file");
  ::setenv("LENETCTL_CONFIG", "", 1);
  EXPECT_EQ(ContextPath(), "/config/lenet/lenetctl.toml");
  // NOLINTEND(concurrency-mt-unsafe)
}

TEST_F(ContextFileTest, WithoutAFileThereAreNoContexts) {
  for (const fs::path& path : {file_, folder_ / "no/folder/lenetctl.toml", fs::path("/dev/null"), fs::path()}) {
    const absl::StatusOr<Contexts> contexts = ReadContexts(path);
    ASSERT_TRUE(contexts.ok()) << contexts.status();
    EXPECT_TRUE(contexts->contexts.empty());
    EXPECT_EQ(contexts->current, "");
    EXPECT_THAT(Message(contexts->Find("a").status()), HasSubstr("there are none"));
  }
}

TEST_F(ContextFileTest, IsReadWithPathsFromItsFolder) {
  Write(
      "# mine\n"
      "current = 'b.1'\n"
      "[contexts.a]\n"
      "server = \"unix:run/sock\"\n"
      "[contexts.\"b.1\"]\n"
      "server = \"[::1]:5\"\ntls = true\nca = \"ca.pem\"\ncert = \"/c.pem\"\nkey = \"../k\"\ntoken_file = \"t\"\n");
  const absl::StatusOr<Contexts> contexts = ReadContexts(file_);
  ASSERT_TRUE(contexts.ok()) << contexts.status();
  EXPECT_EQ(contexts->current, "b.1");
  EXPECT_EQ(contexts->current_line, 2);
  const std::string folder = folder_.string();
  EXPECT_EQ(*contexts->Find("a"), (Context{.server = "unix:" + folder + "/run/sock"}));
  EXPECT_EQ(*contexts->Find("b.1"), (Context{.server = "[::1]:5",
                                             .tls = true,
                                             .ca = folder + "/ca.pem",
                                             .cert = "/c.pem",
                                             .key = folder + "/../k",
                                             .token_file = folder + "/t"}));
  EXPECT_EQ(contexts->Find("c").status().message(),
            absl::StrCat("there is no context \"c\"; there are a, b.1 in '", file_.string(), "'"));
}

TEST_F(ContextFileTest, WhatIsWrongIsNamedWithItsLineAndKey) {
  const std::string good = "[contexts.a]\nserver = 'h:1'\n";
  struct Case {
    std::string text;
    const char* error;  // behind the file's name
  };
  for (const Case& wrong : std::vector<Case>{
           {"colour = 1\n", ":1: colour: unknown key; the keys are current and contexts"},
           {"\ncurrent = 1\n", ":2: current: must be a string"},
           {"current = ''\n", ":1: current: the name \"\" is not 1 to 64 letters"},
           {"current = 'a b'\n", ":1: current: the name \"a b\" is not"},
           {"contexts = 3\n", ":1: contexts: must be tables"},
           {"[[contexts]]\n", ":1: contexts: must be tables"},
           {"[contexts]\na = 1\n", ":2: contexts.a: must be a table, [contexts.a]"},
           {"[contexts.'a/b']\nserver = 'h:1'\n", ":1: contexts.a/b: the name \"a/b\" is not 1 to 64 letters"},
           {good + "port = 5\n",
            ":3: contexts.a.port: unknown key; the keys are server, tls, ca, cert, key, token_file"},
           {good + "tls = 'yes'\n", ":3: contexts.a.tls: must be true or false"},
           {good + "ca = true\n", ":3: contexts.a.ca: must be a string"},
           {good + "key = ['k']\n", ":3: contexts.a.key: must be a string"},
           {good + "token_file = ''\n", ":3: contexts.a.token_file: the value is empty"},
           {good + "token_file = \"a\\u0000b\"\n", ":3: contexts.a.token_file: has control characters"},
           {good + "cert = 'c'\n", ":1: contexts.a.cert: cert and key go together"},
           {good + "key = 'k'\n", ":1: contexts.a.key: cert and key go together"},
           {"\n[contexts.a]\ntls = true\n", ":2: contexts.a.server: has to be given"},
           {"[contexts.a]\n\nserver = 'h'\n", ":3: contexts.a.server: server address \"h\" is not HOST:PORT"},
           {"[contexts.a]\nserver = 'unix:'\n", ":2: contexts.a.server: server address \"unix:\" names no socket"},
           {"[contexts.a]\nserver = 'http://h:1'\n", "without http://"},
           {good + good, ":3: "},
           {good + "tls = \n", ":3: "},
           {"current = \"\xff\"\n", ":1: "},
           {good + "ca = 'x", ":3: "},
           {"[contexts.a", ":1: "},
           {"a = " + std::string(5000, '['), ":1: "}}) {
    Write(wrong.text);
    const absl::Status status = ReadContexts(file_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong.text;
    EXPECT_THAT(Message(status), StartsWith(file_.string() + ":")) << wrong.text;
    EXPECT_THAT(Message(status), HasSubstr(wrong.error)) << wrong.text;
    // Nor is it written anew.
    const absl::Status changed = ChangeContexts(file_, [](Contexts*) { return absl::OkStatus(); });
    EXPECT_EQ(changed, status);
    EXPECT_EQ(Content(file_), wrong.text);
  }
}

TEST_F(ContextFileTest, NamesHaveBounds) {
  for (const std::string& name : {std::string("a"), std::string("A-1_b.C"), std::string(64, 'x')}) {
    EXPECT_TRUE(CheckContextName(name).ok()) << name;
  }
  for (const std::string& name : {std::string(), std::string(65, 'x'), std::string("a b"), std::string("\xc3\xa4"),
                                  std::string("a\n"), std::string("a\"b"), std::string("a\0b", 3)}) {
    EXPECT_FALSE(CheckContextName(name).ok()) << name;
  }
}

TEST_F(ContextFileTest, OneMebibyteIsTheMost) {
  constexpr size_t kMost = 1 << 20;
  Write(std::string(kMost, '\n'));
  EXPECT_TRUE(ReadContexts(file_).ok());
  Write(std::string(kMost + 1, '\n'));
  EXPECT_THAT(Message(ReadContexts(file_).status()), HasSubstr("has more than 1048576 bytes"));
  // Nothing is written that could not be read.
  Write("");
  const absl::Status status = ChangeContexts(file_, [](Contexts* contexts) {
    contexts->contexts["a"] = {.server = "h:1", .ca = std::string(kMost, 'x')};
    return absl::OkStatus();
  });
  EXPECT_THAT(Message(status), HasSubstr("would have more than 1048576 bytes"));
  EXPECT_EQ(Content(file_), "");
}

TEST_F(ContextFileTest, WhatIsWrittenIsReadBackTheSame) {
  const std::vector<std::pair<std::string, Context>> wanted = {{"a", {.server = "h:1"}},
                                                               {"b.c.d",
                                                                {.server = "unix:/s \"x\"",
                                                                 .tls = true,
                                                                 .ca = "/a\\b",
                                                                 .cert = "/\xc3\xa4 # '",
                                                                 .key = "/\\u0041",
                                                                 .token_file = "/="}},
                                                               {"true", {.server = "h:2", .token_file = "relative"}}};
  for (const auto& [name, context] : wanted) Set(file_, name, context);
  const absl::Status chosen = ChangeContexts(file_, [](Contexts* contexts) {
    contexts->current = "b.c.d";
    return absl::OkStatus();
  });
  ASSERT_TRUE(chosen.ok()) << chosen;
  const absl::StatusOr<Contexts> contexts = ReadContexts(file_);
  ASSERT_TRUE(contexts.ok()) << contexts.status();
  EXPECT_EQ(contexts->current, "b.c.d");
  EXPECT_EQ(std::vector(contexts->contexts.begin(), contexts->contexts.end()),
            (std::vector<std::pair<const std::string, Context>>(wanted.begin(), wanted.end())));
  EXPECT_THAT(Content(file_), HasSubstr("[contexts.true]\nserver = \"h:2\"\ntoken_file = \"relative\"\n"));
}

TEST_F(ContextFileTest, IsItsOwnersAloneAndReplacedAsAWhole) {
  const fs::path file = folder_ / "config/lenet/lenetctl.toml";
  Set(file, "a", {.server = "h:1"});
  EXPECT_EQ(Mode(file), 0600);
  EXPECT_EQ(Mode(folder_ / "config/lenet"), 0700);
  EXPECT_EQ(Mode(folder_ / "config"), 0700);
  fs::permissions(file, fs::perms(0644));
  std::ifstream before(file);
  Set(file, "b", {.server = "h:2"});
  EXPECT_EQ(Mode(file), 0600);
  // The old file was not written to.
  EXPECT_EQ((std::string{std::istreambuf_iterator<char>(before), {}}), "[contexts.a]\nserver = \"h:1\"\n");
  EXPECT_THAT(Names(folder_ / "config/lenet"), ElementsAre(".lenetctl.toml.lock", "lenetctl.toml"));
}

TEST_F(ContextFileTest, AChangeThatFailsChangesNothing) {
  Write("# as it was\n");
  const absl::Status status = ChangeContexts(file_, [](Contexts* contexts) {
    contexts->contexts["a"] = {.server = "h:1"};
    return absl::NotFoundError("no");
  });
  EXPECT_EQ(status, absl::NotFoundError("no"));
  EXPECT_EQ(Content(file_), "# as it was\n");
  EXPECT_EQ(ChangeContexts("", [](Contexts*) { return absl::OkStatus(); }).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(ContextFileTest, WritersAtOnceLoseNothingAndReadersSeeWholeFiles) {
  constexpr int kWriters = 6;
  constexpr int kEach = 8;
  std::atomic<bool> done = false;
  std::thread reader([&] {
    size_t most = 0;
    while (!done) {
      const absl::StatusOr<Contexts> contexts = ReadContexts(file_);
      ASSERT_TRUE(contexts.ok()) << contexts.status();
      EXPECT_GE(contexts->contexts.size(), most);
      most = contexts->contexts.size();
    }
  });
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([this, writer] {
      for (int i = 0; i < kEach; ++i) Set(file_, absl::StrCat("c", writer, ".", i), {.server = "h:1"});
    });
  }
  for (std::thread& writer : writers) writer.join();
  done = true;
  reader.join();
  EXPECT_EQ(ReadContexts(file_)->contexts.size(), kWriters * kEach);
  EXPECT_THAT(Names(folder_), ElementsAre(".lenetctl.toml.lock", "lenetctl.toml"));
}

TEST_F(ContextFileTest, ASymbolicLinkStaysAndItsTargetIsReplaced) {
  fs::create_directories(folder_ / "dotfiles");
  const fs::path target = folder_ / "dotfiles/lenet";
  std::ofstream(target) << "[contexts.a]\nserver = 'h:1'\nca = 'ca.pem'\n";
  fs::create_symlink("dotfiles/lenet", file_);
  Set(file_, "b", {.server = "h:2"});
  EXPECT_TRUE(fs::is_symlink(file_));
  EXPECT_FALSE(fs::is_symlink(target));
  EXPECT_THAT(Names(folder_), ElementsAre("dotfiles", "lenetctl.toml"));
  const absl::StatusOr<Contexts> contexts = ReadContexts(file_);
  ASSERT_TRUE(contexts.ok()) << contexts.status();
  EXPECT_EQ(contexts->contexts.size(), 2u);
  EXPECT_EQ(contexts->Find("a")->ca, (folder_ / "dotfiles/ca.pem").string());
  fs::remove(target);
  const absl::Status nowhere = ChangeContexts(file_, [](Contexts*) { return absl::OkStatus(); });
  EXPECT_THAT(Message(nowhere), HasSubstr("is a symbolic link to nowhere"));
  EXPECT_FALSE(ReadContexts(file_).ok());
}

TEST_F(ContextFileTest, WhatIsNoFileIsLeftAlone) {
  for (const fs::path& path : {fs::path("/dev/null"), folder_}) {
    const absl::Status status = ChangeContexts(path, [](Contexts*) { return absl::OkStatus(); });
    EXPECT_THAT(Message(status), HasSubstr("is not a regular file"));
  }
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_THAT(Message(ReadContexts(folder_).status()), HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace lenet::ctl
