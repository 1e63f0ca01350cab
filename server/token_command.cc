#include "server/token_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/config.h"
#include "server/rpc/access.h"
#include "trainer/base/descriptor.h"
#include "trainer/base/file.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

// Adds a line at the end of a file, which is made if there is none, for its owner and group alone.
absl::Status AddLine(const std::string& path, const std::string& line) {
  const UniqueDescriptor file(Descriptor{::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0640)});
  const auto failed = [&path] {
    return absl::UnavailableError(absl::StrCat("'", path, "': ", std::generic_category().message(errno)));
  };
  if (!file) return failed();
  // A last line without an end would swallow this one.
  const int fd = file.get().number;
  const off_t size = ::lseek(fd, 0, SEEK_END);
  char last = '\n';
  if (size < 0 || (size > 0 && ::pread(fd, &last, 1, size - 1) != 1)) return failed();
  const std::string text = absl::StrCat(last == '\n' ? "" : "\n", line, "\n");
  // One write, so that two commands at once leave two lines.
  if (::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()) || ::fsync(fd) != 0) return failed();
  return absl::OkStatus();
}

}  // namespace

int TokenCommand(int argc, const char* const* argv) {
  std::string name;
  std::string role;
  std::string file;
  CLI::App app("lenetd token makes tokens by which clients are known.", "lenetd token");
  app.require_subcommand(1);
  CLI::App* const add = app.add_subcommand(
      "add", "Make a token, print it, once, and add its rule, which has only its hash, to the access file");
  add->footer(
      "Exit codes: 0 made; 1 the file cannot be written; 2 bad command line. To take a token back, remove its line "
      "and\n"
      "send lenetd SIGHUP.");
  add->add_option("NAME", name, "Whose token it is: letters, digits, '-' and '_', a letter first")->required();
  add->add_option("--role", role, "viewer: read; submitter: and start jobs and change one's own; admin: all")
      ->required()
      ->check(CLI::IsMember({"viewer", "submitter", "admin"}));
  add->add_option("--access-file", file, "The file of lenetd's --access-file")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  const auto report = [](const absl::Status& status, int code) {
    std::fprintf(stderr, "lenetd token add: %s\n", std::string(status.message()).c_str());
    return code;
  };
  absl::StatusOr<Role> parsed = ParseRole(role);
  if (!parsed.ok()) return report(parsed.status(), kExitUsage);
  const absl::StatusOr<NewToken> made = MakeToken(name, *parsed);
  if (!made.ok()) return report(made.status(), kExitUsage);
  if (const absl::Status added = AddLine(file, made->rule); !added.ok()) return report(added, kExitFailure);
  std::printf("%s\n", made->token.c_str());
  return std::fflush(stdout) == 0 ? kExitOk : report(absl::UnavailableError("cannot write the token"), kExitFailure);
}

}  // namespace lenet
