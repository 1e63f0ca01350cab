// Which server is used, with whose token and certificates; and the commands that change contexts.
#include "client/ctl/server_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/ctl/command_line.h"
#include "client/ctl/exit_code.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/client/ctl/environment.h"
#include "tests/unit/client/ctl/fake_terminal.h"

namespace lenet::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Parsed {
  std::optional<int> code;
  CommandLine line;
  FakeFile output;

  // "SERVER TOKEN", or the error.
  std::string target() const { return code ? output.err : absl::StrCat(line.client.address, " ", line.client.token); }
};

class ServerFlagsTest : public ::testing::Test {
 protected:
  ServerFlagsTest() {
    ClearEnvironment();
    SetVariable("LENETCTL_CONFIG", file_);
    for (const char* name : {"flag", "variable", "context", "other"}) {
      std::ofstream(folder_ / (std::string(name) + ".token")) << name;
      std::ofstream(folder_ / (std::string(name) + ".pem")) << "CERTIFICATE " << name;
      std::ofstream(folder_ / (std::string(name) + ".key")) << "PRIVATE KEY " << name;
    }
  }
  ~ServerFlagsTest() override { ClearEnvironment(); }

  static void SetVariable(const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): there is one thread
  }

  // Arguments are words; FOLDER in them is that of the files.
  Parsed Parse(const std::string& text, const std::string& server = "") {
    Parsed parsed;
    std::vector<std::string> arguments = absl::StrSplit(text, ' ', absl::SkipEmpty());
    for (std::string& argument : arguments) {
      const size_t at = argument.find("FOLDER");
      if (at != std::string::npos) argument.replace(at, 6, folder_.path().string());
    }
    parsed.code = ParseCommandLine(arguments, server, &parsed.output, &parsed.line);
    return parsed;
  }

  // What a command writes; it must succeed.
  std::string Must(const std::string& text) {
    const Parsed parsed = Parse(text);
    EXPECT_EQ(parsed.code, std::optional<int>(kSuccess)) << text << ": " << parsed.output.err;
    return parsed.output.out;
  }

  // A command's error; it must be one of usage.
  std::string Refused(const std::string& text) {
    const Parsed parsed = Parse(text);
    EXPECT_EQ(parsed.code, std::optional<int>(kUsage)) << text;
    EXPECT_EQ(parsed.output.out, "") << text;
    return parsed.output.err;
  }

  void WriteContexts(const std::string& text) { std::ofstream(file_) << text; }

  TempFolder folder_;
  const std::string file_ = folder_ / "lenetctl.toml";
};

constexpr char kTwo[] =
    "current = 'near'\n"
    "[contexts.near]\nserver = 'localhost:1'\ntoken_file = 'context.token'\n"
    "[contexts.far]\nserver = 'far:2'\nca = 'context.pem'\ncert = 'context.pem'\nkey = 'context.key'\n"
    "token_file = 'other.token'\n"
    "[contexts.bare]\nserver = 'localhost:3'\n";

TEST_F(ServerFlagsTest, TheServerComesFromTheFlagTheVariableTheContextOrTheSocket) {
  EXPECT_EQ(Parse("info").target(), "unix:/run/lenet/lenetd.sock ");
  WriteContexts(kTwo);
  EXPECT_EQ(Parse("info").target(), "localhost:1 context");
  SetVariable("LENET_CONTEXT", "bare");
  EXPECT_EQ(Parse("info").target(), "localhost:3 ");
  EXPECT_EQ(Parse("info --context far").target(), "far:2 other");
  EXPECT_EQ(Parse("info", "v:4").target(), "v:4 ");
  EXPECT_EQ(Parse("info --server f:5", "v:4").target(), "f:5 ");
  EXPECT_EQ(Parse("--context near info", "v:4").target(), "localhost:1 context");
}

TEST_F(ServerFlagsTest, WhatAContextHasIsForItsOwnServer) {
  WriteContexts(
      "current = 'a'\n[contexts.a]\nserver = 'a:1'\ntls = true\nca = 'context.pem'\ncert = 'context.pem'\n"
      "key = 'context.key'\ntoken_file = 'context.token'\n");
  for (const bool by_variable : {false, true}) {
    if (by_variable) SetVariable("LENET_CONTEXT", "a");
    for (const Parsed& parsed : {Parse("info", "b:2"), Parse("info --server b:2")}) {
      EXPECT_EQ(parsed.target(), "b:2 ");
      EXPECT_FALSE(parsed.line.client.tls.enabled);
      EXPECT_EQ(parsed.line.client.tls.ca, "");
      EXPECT_EQ(parsed.line.client.tls.certificate, "");
      EXPECT_EQ(parsed.line.client.tls.key, "");
    }
    const Parsed own = Parse("info");
    EXPECT_EQ(own.target(), "a:1 context");
    EXPECT_TRUE(own.line.client.tls.enabled);
    EXPECT_EQ(own.line.client.tls.ca, "CERTIFICATE context");
    EXPECT_EQ(own.line.client.tls.certificate, "CERTIFICATE context");
    EXPECT_EQ(own.line.client.tls.key, "PRIVATE KEY context");
  }
  // Unless it is asked for, in so many words.
  const Parsed asked = Parse("info --server b:2 --context a");
  EXPECT_EQ(asked.target(), "b:2 context");
  EXPECT_EQ(asked.line.client.tls.ca, "CERTIFICATE context");
}

TEST_F(ServerFlagsTest, AFlagGoesBeforeAVariableAndThatBeforeTheContextValueByValue) {
  WriteContexts(kTwo);
  SetVariable("LENET_CONTEXT", "far");
  const std::string variable = folder_ / "variable.pem";
  for (const char* name : {"LENET_CA", "LENET_CERT"}) SetVariable(name, variable);
  SetVariable("LENET_KEY", folder_ / "variable.key");
  Parsed parsed = Parse("info --ca FOLDER/flag.pem");
  EXPECT_EQ(parsed.target(), "far:2 other");
  EXPECT_EQ(parsed.line.client.tls.ca, "CERTIFICATE flag");
  EXPECT_EQ(parsed.line.client.tls.certificate, "CERTIFICATE variable");
  EXPECT_EQ(parsed.line.client.tls.key, "PRIVATE KEY variable");
  SetVariable("LENET_TOKEN_FILE", folder_ / "variable.token");
  EXPECT_EQ(Parse("info").target(), "far:2 variable");
  EXPECT_EQ(Parse("info --token-file FOLDER/flag.token").target(), "far:2 flag");
  // Without a context as ever.
  EXPECT_EQ(Parse("info", "v:4").target(), "v:4 variable");
}

TEST_F(ServerFlagsTest, TheFlagOfAContextGoesBeforeTheVariables) {
  WriteContexts(kTwo);
  SetVariable("LENET_CA", folder_ / "variable.pem");
  SetVariable("LENET_TOKEN_FILE", folder_ / "variable.token");
  const Parsed parsed = Parse("info --context far");
  EXPECT_EQ(parsed.target(), "far:2 other");
  EXPECT_EQ(parsed.line.client.tls.ca, "CERTIFICATE context");
  EXPECT_EQ(Parse("info --context far --token-file FOLDER/flag.token").target(), "far:2 flag");
  // They stand for what it does not have, but not where they are another server's.
  EXPECT_EQ(Parse("info --context bare").target(), "localhost:3 variable");
  const Parsed other = Parse("info --context bare", "v:4");
  EXPECT_EQ(other.target(), "localhost:3 ");
  EXPECT_FALSE(other.line.client.tls.enabled);
}

TEST_F(ServerFlagsTest, NoTokenGoesInTheClearToAnotherMachineWhoeverNamesIt) {
  WriteContexts(
      "current = 'a'\n[contexts.a]\nserver = 'a:1'\ntoken_file = 'context.token'\n[contexts.b]\nserver = 'b:2'\n");
  EXPECT_THAT(Refused("info"),
              StartsWith("lenetctl: the token of token_file of the context a would go to a:1 for all"));
  EXPECT_EQ(Parse("info --tls").target(), "a:1 context");
  EXPECT_THAT(Refused("info --server c:3 --context a"), HasSubstr("would go to c:3"));
  EXPECT_THAT(Refused("info --context b --token-file FOLDER/flag.token"), HasSubstr("the token of --token-file"));
  SetVariable("LENET_TOKEN_FILE", folder_ / "variable.token");
  EXPECT_THAT(Refused("info --context b"), HasSubstr("the token of LENET_TOKEN_FILE would go to b:2"));
}

TEST_F(ServerFlagsTest, FilesThatCannotBeUsedAreNamedWithWhoNamedThem) {
  WriteContexts(
      "[contexts.a]\nserver = 'a:1'\nca = 'nosuch'\n[contexts.b]\nserver = 'b:1'\ncert = 'flag.key'\nkey = "
      "'flag.key'\n");
  EXPECT_THAT(Refused("info --context a"),
              HasSubstr(absl::StrCat("ca of the context a: '", (folder_ / "nosuch").string(), "': No such file")));
  EXPECT_THAT(Refused("info --context b"), HasSubstr("cert of the context b: "));
  SetVariable("LENET_KEY", "/nosuch");
  SetVariable("LENET_CERT", folder_ / "flag.pem");
  EXPECT_THAT(Refused("info"), HasSubstr("LENET_KEY: '/nosuch': No such file"));
}

TEST_F(ServerFlagsTest, ContextsThatAreNotThereAreNamedWithThoseThatAre) {
  EXPECT_THAT(Refused("info --context a"), HasSubstr("there is no context \"a\"; there are none in"));
  WriteContexts("\ncurrent = 'gone'\n[contexts.a]\nserver = 'a:1'\n[contexts.b]\nserver = 'b:1'\n");
  EXPECT_THAT(Refused("info"),
              HasSubstr(absl::StrCat(file_, ":2: current: there is no context \"gone\"; there are a, b")));
  EXPECT_THAT(Refused("info --context c"), HasSubstr("there is no context \"c\"; there are a, b"));
  SetVariable("LENET_CONTEXT", "d");
  EXPECT_THAT(Refused("info"), HasSubstr("there is no context \"d\"; there are a, b"));
  EXPECT_THAT(Refused("context use e"), HasSubstr("there is no context \"e\"; there are a, b"));
}

TEST_F(ServerFlagsTest, ABadFileIsInNobodysWayWhoNamesTheServer) {
  WriteContexts("[contexts.a]\nserver = 'a'\n");
  EXPECT_EQ(Parse("info --server b:2").target(), "b:2 ");
  EXPECT_EQ(Parse("info", "v:4").target(), "v:4 ");
  EXPECT_THAT(Refused("info"), HasSubstr(absl::StrCat(file_, ":2: contexts.a.server: server address \"a\"")));
  EXPECT_THAT(Refused("context list"), HasSubstr(":2: contexts.a.server"));
}

TEST_F(ServerFlagsTest, AdviceRepeatsTheFlagsAndNoMore) {
  WriteContexts(kTwo);
  SetVariable("LENET_CA", folder_ / "variable.pem");
  EXPECT_EQ(Parse("info").line.lenetctl, "lenetctl");
  EXPECT_EQ(Parse("info --context bare --tls").line.lenetctl, "lenetctl --context bare --tls");
}

TEST_F(ServerFlagsTest, HelpNamesTheVariables) {
  SetVariable("LENET_CA", "/nosuch");
  const std::string help = Must("--help");
  for (const char* text : {"--context NAME (Env:LENET_CONTEXT)", "(Env:LENET_CA)", "(Env:LENET_CERT)",
                           "(Env:LENET_KEY)", "(Env:LENET_TOKEN_FILE)", "goes before LENET_SERVER"}) {
    EXPECT_THAT(help, HasSubstr(text));
  }
}

TEST_F(ServerFlagsTest, ContextsAreSetUsedShownAndRemoved) {
  EXPECT_EQ(Must("context list --json"), "");
  // What the variables say is no part of it.
  SetVariable("LENET_TOKEN_FILE", "/elsewhere");
  SetVariable("LENET_CONTEXT", "");
  EXPECT_EQ(Must("context set a --server a:1 --tls --ca /ca --cert=/cert --key /key --token-file /token"),
            "context a: set\n");
  EXPECT_EQ(Must("context set b.c --server unix:/b --json"), "");
  EXPECT_THAT(Refused("context show"), HasSubstr("no context is current"));
  EXPECT_EQ(Must("context use a"), "context a: current\n");
  EXPECT_EQ(Must("context list"), "CURRENT  NAME  SERVER\n*        a     a:1\n-        b.c   unix:/b\n");
  EXPECT_EQ(Must("context show"), absl::StrCat("context:     a (current)\nserver:      a:1\ntls:         yes\n"
                                               "ca:          /ca\ncert:        /cert\nkey:         /key\n"
                                               "token file:  /token\nfile:        ",
                                               file_, "\n"));
  EXPECT_EQ(nlohmann::json::parse(Must("context show --json")), nlohmann::json({{"name", "a"},
                                                                                {"current", true},
                                                                                {"server", "a:1"},
                                                                                {"tls", true},
                                                                                {"ca", "/ca"},
                                                                                {"cert", "/cert"},
                                                                                {"key", "/key"},
                                                                                {"token_file", "/token"}}));
  EXPECT_EQ(nlohmann::json::parse(Must("--context b.c context show --json")),
            nlohmann::json({{"name", "b.c"}, {"current", false}, {"server", "unix:/b"}, {"tls", false}}));
  // It takes the place of what was there.
  Must("context set a --server a:2");
  EXPECT_EQ(Must("context show a"), absl::StrCat("context:  a (current)\nserver:   a:2\nfile:     ", file_, "\n"));
  EXPECT_EQ(Must("context remove a"), "context a: removed\n");
  EXPECT_EQ(Must("context list"), "CURRENT  NAME  SERVER\n-        b.c   unix:/b\n");
  EXPECT_THAT(Refused("context remove a"), HasSubstr("there is no context \"a\"; there are b.c"));
}

TEST_F(ServerFlagsTest, PathsAreSetFromTheWorkingFolder) {
  const std::string here = std::filesystem::current_path();
  Must("context set a --server unix:run/sock --ca ca.pem");
  const nlohmann::json shown = nlohmann::json::parse(Must("context show a --json"));
  EXPECT_EQ(shown["server"], "unix:" + here + "/run/sock");
  EXPECT_EQ(shown["ca"], here + "/ca.pem");
}

TEST_F(ServerFlagsTest, WhatIsWrongWithACommandOfContextsIsNamed) {
  Must("context set a --server a:1");
  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {"context", "context needs one of list, show, use, set, remove"},
           {"context lists", "there is no command \"context lists\"; there are list, show, use, set, remove"},
           {"context list a", "unexpected: a"},
           {"context use", "NAME is required"},
           {"context set", "NAME is required"},
           {"context set b", "server: has to be given"},
           {"context set b --tls", "server: has to be given"},
           {"context set b --server b", "\"b\" is not HOST:PORT"},
           {"context set b/c --server b:1", "the name \"b/c\" is not 1 to 64 letters, digits, '-', '_' and '.'"},
           {"context set b --server b:1 --cert c", "cert and key go together"},
           {"context set b --server b:1 --token-file a\nb", "token_file: has control characters"},
           {"context set b --server=", "--server: the value is empty"},
           {"context set b --server b:1 --context a", "--context says nothing to this command"},
           {"context use a --server b:1", "context set takes them"},
           {"context list --tls", "context set takes them"},
           {"context show a --context a", "--context says nothing to this command"}}) {
    EXPECT_THAT(Refused(text), HasSubstr(error)) << text;
  }
  EXPECT_THAT(Refused("context set b"), HasSubstr("See lenetctl context set --help."));
  EXPECT_EQ(nlohmann::json::parse(Must("context list --json"))["server"], "a:1");
}

TEST_F(ServerFlagsTest, AFileThatCannotBeWrittenIsAnError) {
  SetVariable("LENETCTL_CONFIG", "/dev/null");
  const Parsed parsed = Parse("context set a --server a:1");
  EXPECT_EQ(parsed.code, std::optional<int>(kError));
  EXPECT_EQ(parsed.output.err, "lenetctl: '/dev/null' is not a regular file\n");
}

}  // namespace
}  // namespace lenet::ctl
