#include "client/ctl/context_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ctl/address.h"
#include "client/ctl/environment.h"
#include "client/ctl/value_flags.h"

// All of toml++ in this file, and errors as values. Some malformed texts break its assertions (3.3.0), but are errors
// behind them: with NDEBUG clang would take them for granted, without it they would end the process.
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ASSERT(expression) static_cast<void>(0)
#pragma push_macro("NDEBUG")
#undef NDEBUG
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace lenet::ctl {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = 1 << 20;

// The keys of a context with a text.
struct TextKey {
  const char* name;
  std::string Context::*value;
};
constexpr std::array<TextKey, 5> kTextKeys = {{{"server", &Context::server},
                                               {"ca", &Context::ca},
                                               {"cert", &Context::cert},
                                               {"key", &Context::key},
                                               {"token_file", &Context::token_file}}};

absl::Status SystemError(const fs::path& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("'", path.string(), "'"));
}

fs::path FolderOf(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

absl::Status CheckValue(const TextKey& key, const Context& context) {
  const std::string& value = context.*key.value;
  if (std::any_of(value.begin(), value.end(), absl::ascii_iscntrl)) {
    return absl::InvalidArgumentError(absl::StrCat(key.name, ": has control characters"));
  }
  if (key.value != &Context::server || value.empty()) return absl::OkStatus();
  const std::string wrong = CheckAddress(value);
  return wrong.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrCat(key.name, ": ", wrong));
}

// Reads a file's content.
class Reader {
 public:
  explicit Reader(Contexts contexts) : contexts_(std::move(contexts)) {}

  absl::StatusOr<Contexts> Read(const std::string& text) && {
    const toml::parse_result result = toml::parse(std::string_view(text));
    if (!result) {
      const std::string_view reason = result.error().description();
      return Error(result.error().source(), absl::string_view(reason.data(), reason.size()));
    }
    for (const auto& [key, node] : result.table()) {
      absl::Status status;
      if (key.str() == "current") {
        status = ReadCurrent(node);
      } else if (key.str() == "contexts") {
        status = ReadTable(node);
      } else {
        status = Error(key.source(), absl::StrCat(Text(key), ": unknown key; the keys are current and contexts"));
      }
      if (!status.ok()) return status;
    }
    return std::move(contexts_);
  }

 private:
  static std::string Text(const toml::key& key) { return std::string(key.str()); }

  absl::Status Error(const toml::source_region& region, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(contexts_.path, ":", region.begin.line, ": ", what));
  }

  absl::Status ReadCurrent(const toml::node& node) {
    const auto* const text = node.as_string();
    if (text == nullptr) return Error(node.source(), "current: must be a string");
    contexts_.current = text->get();
    contexts_.current_line = static_cast<int>(node.source().begin.line);
    const absl::Status named = CheckContextName(contexts_.current);
    return named.ok() ? named : Error(node.source(), absl::StrCat("current: ", named.message()));
  }

  absl::Status ReadTable(const toml::node& node) {
    const toml::table* const table = node.as_table();
    if (table == nullptr) return Error(node.source(), "contexts: must be tables, [contexts.NAME]");
    for (const auto& [key, value] : *table) {
      const std::string name = absl::StrCat("contexts.", Text(key));
      if (const absl::Status named = CheckContextName(Text(key)); !named.ok()) {
        return Error(key.source(), absl::StrCat(name, ": ", named.message()));
      }
      const toml::table* const entries = value.as_table();
      if (entries == nullptr) return Error(key.source(), absl::StrCat(name, ": must be a table, [", name, "]"));
      const absl::Status status = ReadContext(name, *entries, &contexts_.contexts[Text(key)]);
      if (!status.ok()) return status;
      if (const absl::Status whole = CheckContext(contexts_.contexts[Text(key)]); !whole.ok()) {
        return Error(key.source(), absl::StrCat(name, ".", whole.message()));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadContext(const std::string& name, const toml::table& entries, Context* context) {
    for (const auto& [key, node] : entries) {
      const std::string word = Text(key);
      const std::string full_name = absl::StrCat(name, ".", word);
      if (word == "tls") {
        const auto* const tls = node.as_boolean();
        if (tls == nullptr) return Error(node.source(), absl::StrCat(full_name, ": must be true or false"));
        context->tls = tls->get();
        continue;
      }
      const auto* const known =
          std::find_if(kTextKeys.begin(), kTextKeys.end(), [&](const TextKey& one) { return word == one.name; });
      if (known == kTextKeys.end()) {
        return Error(key.source(),
                     absl::StrCat(full_name, ": unknown key; the keys are server, tls, ca, cert, key, token_file"));
      }
      const auto* const text = node.as_string();
      if (text == nullptr) return Error(node.source(), absl::StrCat(full_name, ": must be a string"));
      if (text->get().empty()) return Error(node.source(), absl::StrCat(full_name, ": the value is empty"));
      context->*known->value = text->get();
      // Here, so that the line is this one.
      const absl::Status valid = CheckValue(*known, *context);
      if (!valid.ok()) return Error(node.source(), absl::StrCat(name, ".", valid.message()));
    }
    return absl::OkStatus();
  }

  Contexts contexts_;
};

// A TOML string of text without control characters.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string Written(const Contexts& contexts) {
  std::string text;
  if (!contexts.current.empty()) absl::StrAppend(&text, "current = ", Quoted(contexts.current), "\n");
  for (const auto& [name, context] : contexts.contexts) {
    // In quotes for its dots, which would make tables of their own.
    absl::StrAppend(&text, text.empty() ? "" : "\n", "[contexts.", absl::StrContains(name, '.') ? Quoted(name) : name,
                    "]\n");
    for (const TextKey& key : kTextKeys) {
      const std::string& value = context.*key.value;
      if (!value.empty()) absl::StrAppend(&text, key.name, " = ", Quoted(value), "\n");
    }
    if (context.tls) absl::StrAppend(&text, "tls = true\n");
  }
  return text;
}

absl::Status MakeFolders(const fs::path& folder) {
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return absl::OkStatus();
  if (folder.has_parent_path() && folder.parent_path() != folder) {
    if (absl::Status made = MakeFolders(folder.parent_path()); !made.ok()) return made;
  }
  return ::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST ? absl::OkStatus() : SystemError(folder);
}

absl::Status WriteAndSync(int fd, const std::string& text, const fs::path& path) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR) return SystemError(path);
    if (written > 0) done += static_cast<size_t>(written);
  }
  return ::fsync(fd) == 0 ? absl::OkStatus() : SystemError(path);
}

// Whole or not at all, whatever fails.
absl::Status Replace(const fs::path& path, const std::string& text) {
  std::string temporary = FolderOf(path) / absl::StrCat(".", path.filename().string(), ".XXXXXX");
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);  // with mode 0600
  if (fd < 0) return SystemError(temporary);
  absl::Status status = WriteAndSync(fd, text, temporary);
  if (::close(fd) != 0 && status.ok()) status = SystemError(temporary);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) status = SystemError(path);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  const int folder = ::open(FolderOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return SystemError(FolderOf(path));
  if (::fsync(folder) != 0) status = SystemError(FolderOf(path));
  ::close(folder);
  return status;
}

// Where the file lies: behind links, if there are any.
fs::path Target(const fs::path& path) {
  std::error_code error;
  fs::path target = fs::canonical(path, error);
  return error ? path : target;
}

}  // namespace

Context Resolved(Context context, const fs::path& folder) {
  constexpr absl::string_view kUnix = "unix:";
  if (absl::StartsWith(context.server, kUnix)) {
    context.server = absl::StrCat(kUnix, (folder / context.server.substr(kUnix.size())).string());
  }
  for (std::string* path : {&context.ca, &context.cert, &context.key, &context.token_file}) {
    if (!path->empty()) *path = folder / *path;
  }
  return context;
}

absl::StatusOr<Context> Contexts::Find(const std::string& name) const {
  if (const auto found = contexts.find(name); found != contexts.end()) return Resolved(found->second, folder);
  const auto names = [](std::string* out, const auto& entry) { out->append(entry.first); };
  return absl::NotFoundError(absl::StrCat(
      "there is no context \"", name, "\"; ",
      contexts.empty() ? "there are none" : absl::StrCat("there are ", absl::StrJoin(contexts, ", ", names)), " in ",
      path.empty() ? "no file" : absl::StrCat("'", path, "'")));
}

fs::path ContextPath() {
  if (fs::path file = Variable("LENETCTL_CONFIG"); !file.empty()) return file;
  if (const fs::path config = Variable("XDG_CONFIG_HOME"); !config.empty()) return config / "lenet/lenetctl.toml";
  const fs::path home = Variable("HOME");
  return home.empty() ? "" : home / ".config/lenet/lenetctl.toml";
}

absl::Status CheckContextName(const std::string& name) {
  const auto allowed = [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; };
  if (!name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), allowed)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the name \"", name, "\" is not 1 to 64 letters, digits, '-', '_' and '.'"));
}

absl::Status CheckContext(const Context& context) {
  if (context.server.empty()) return absl::InvalidArgumentError("server: has to be given");
  for (const TextKey& key : kTextKeys) {
    if (absl::Status valid = CheckValue(key, context); !valid.ok()) return valid;
  }
  if (context.cert.empty() != context.key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(context.cert.empty() ? "key" : "cert", ": cert and key go together"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Contexts> ReadContexts(const fs::path& path) {
  std::error_code ignored;
  Contexts contexts = {.path = path, .folder = fs::absolute(FolderOf(Target(path)), ignored)};
  if (path.empty() || fs::symlink_status(path, ignored).type() == fs::file_type::not_found) return contexts;
  std::string text;
  const std::string wrong = ReadFile(path, kMaxBytes, &text);
  if (!wrong.empty()) return absl::UnavailableError(absl::StrCat("'", path.string(), "': ", wrong));
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat("'", path.string(), "' has more than ", kMaxBytes, " bytes"));
  }
  return Reader(std::move(contexts)).Read(text);
}

absl::Status ChangeContexts(const fs::path& path, absl::FunctionRef<absl::Status(Contexts*)> change) {
  if (path.empty()) {
    return absl::FailedPreconditionError(
        "no place for the file of contexts: LENETCTL_CONFIG, XDG_CONFIG_HOME and HOME are not set");
  }
  const fs::path target = Target(path);
  std::error_code ignored;
  const fs::file_type type = fs::symlink_status(target, ignored).type();
  if (type == fs::file_type::symlink) {
    return absl::FailedPreconditionError(absl::StrCat("'", path.string(), "' is a symbolic link to nowhere"));
  }
  if (type != fs::file_type::not_found && type != fs::file_type::regular) {
    return absl::FailedPreconditionError(absl::StrCat("'", path.string(), "' is not a regular file"));
  }
  if (absl::Status made = MakeFolders(FolderOf(target)); !made.ok()) return made;
  // Not the file itself, which gets another inode, nor its folder: over NFS only what is open for writing is locked.
  const fs::path lock = FolderOf(target) / absl::StrCat(".", target.filename().string(), ".lock");
  const int fd = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return SystemError(lock);
  const absl::Cleanup closer = [fd] { ::close(fd); };
  if (::flock(fd, LOCK_EX) != 0) return SystemError(lock);
  absl::StatusOr<Contexts> contexts = ReadContexts(target);
  if (!contexts.ok()) return contexts.status();
  if (absl::Status changed = change(&*contexts); !changed.ok()) return changed;
  const std::string text = Written(*contexts);
  if (text.size() > kMaxBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("'", path.string(), "' would have more than ", kMaxBytes, " bytes"));
  }
  return Replace(target, text);
}

}  // namespace lenet::ctl
