#include "client/ctl/completion.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace lenet::ctl {
namespace {

// Ids of jobs, a line each. Where there is no server, or no right to ask it, nothing.
constexpr char kJobIds[] =
    R"sh(lenetctl --timeout 1 list --json --limit 50 2>/dev/null | sed -n 's/^{"id":"\([^"]*\)".*/\1/p')sh";

constexpr char kContexts[] = R"sh(lenetctl context list --json 2>/dev/null | sed -n 's/.*"name":"\([^"]*\)".*/\1/p')sh";

std::vector<const CLI::Option*> Flags(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_positional(); });
}

// Those of a command, and those that all commands take.
std::vector<const CLI::Option*> FlagsOf(const CLI::App& app, const CLI::App& command) {
  std::vector<const CLI::Option*> flags = Flags(command);
  for (const CLI::Option* flag : Flags(app)) {
    if (flag->check_name("--version") || flag->check_name("--help")) continue;
    flags.push_back(flag);
  }
  return flags;
}

std::string Words(const std::vector<const CLI::Option*>& flags) {
  return absl::StrJoin(flags, " ", [](std::string* out, const CLI::Option* flag) {
    absl::StrAppend(out, "--", absl::StrJoin(flag->get_lnames(), " --"));
  });
}

bool TakesValue(const CLI::Option& flag) { return flag.get_items_expected_max() > 0; }
bool TakesFile(const CLI::Option& flag) { return flag.get_type_name() == "FILE"; }

constexpr char kShells[] = "bash zsh fish";

bool TakesContext(const CLI::Option& flag) { return flag.check_name("--context"); }

// What prints the words that may stand as the command's argument; empty where nothing does.
std::string ArgumentsOf(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name(/*positional=*/true);
    if (name == "ID") return kJobIds;
    // A new context has a name of its own, but one may be set again.
    if (name == "NAME") return kContexts;
  }
  return "";
}

// A command, or one of a command's own: "watch", "context list".
struct Path {
  std::vector<std::string> words;
  const CLI::App* command;
};

std::vector<Path> Paths(const CLI::App& app, const std::vector<std::string>& before = {}) {
  std::vector<Path> paths;
  for (const CLI::App* command : CommandsOf(app)) {
    std::vector<std::string> words = before;
    words.push_back(command->get_name());
    paths.push_back({words, command});
    const std::vector<Path> inner = Paths(*command, words);
    paths.insert(paths.end(), inner.begin(), inner.end());
  }
  return paths;
}

// "--ca|--cert", of the flags that `wanted` picks.
template <typename Wanted>
std::string Pattern(const CLI::App& app, const Wanted& wanted) {
  std::vector<std::string> names;
  const auto add = [&](const CLI::App& of) {
    for (const CLI::Option* flag : Flags(of)) {
      const std::string name = absl::StrCat("--", flag->get_lnames().front());
      if (wanted(*flag) && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  };
  add(app);
  for (const CLI::App* command : CommandsOf(app)) add(*command);
  return absl::StrJoin(names, "|");
}

// ":context:list", as the script writes the words before the cursor that are commands.
std::string Label(const Path& path) { return absl::StrCat(":", absl::StrJoin(path.words, ":")); }

std::string Bash(const CLI::App& app) {
  const std::vector<Path> paths = Paths(app);
  std::string script = absl::StrCat(
      "_lenetctl() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case $command:${COMP_WORDS[i]} in ",
      absl::StrJoin(paths, "|", [](std::string* out, const Path& path) { out->append(Label(path)); }),
      ") command=$command:${COMP_WORDS[i]};; esac\n"
      "  done\n"
      "  case $prev in\n"
      "    ",
      Pattern(app, TakesFile),
      ") COMPREPLY=($(compgen -f -- \"$cur\")); return;;\n"
      "    ",
      Pattern(app, TakesContext), ") COMPREPLY=($(compgen -W \"$(", kContexts,
      ")\" -- \"$cur\")); return;;\n"
      "    ",
      Pattern(app, [](const CLI::Option& flag) { return TakesValue(flag) && !TakesFile(flag) && !TakesContext(flag); }),
      ") COMPREPLY=(); return;;\n"
      "  esac\n"
      "  case $command in\n"
      "    '') words='",
      CommandNames(app, " "), " ", Words(Flags(app)), "';;\n");
  for (const Path& path : paths) {
    std::string words = Words(FlagsOf(app, *path.command));
    if (path.command->get_name() == "completion") absl::StrAppend(&words, " ", kShells);
    const std::string inner = CommandNames(*path.command, " ");
    absl::StrAppend(&script, "    ", Label(path), ") words='", inner, inner.empty() ? "" : " ", words, "'");
    const std::string arguments = ArgumentsOf(*path.command);
    if (!arguments.empty()) absl::StrAppend(&script, "; [[ $cur == -* ]] || words=$(", arguments, ")");
    absl::StrAppend(&script, ";;\n");
  }
  absl::StrAppend(&script,
                  "  esac\n"
                  "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                  "}\n"
                  "complete -F _lenetctl lenetctl\n");
  return script;
}

// In single quotes of fish.
std::string FishQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

// Whether the words before the cursor are a command, where "list" may be a command of a command, too.
std::string FishCondition(const Path& path, const std::vector<Path>& paths) {
  std::string condition;
  for (const std::string& word : path.words) {
    absl::StrAppend(&condition, condition.empty() ? "" : "; and ", "__fish_seen_subcommand_from ", word);
  }
  for (const Path& other : paths) {
    if (path.words.size() == 1 && other.words.size() == 2 && other.words.back() == path.words.back()) {
      absl::StrAppend(&condition, "; and not __fish_seen_subcommand_from ", other.words.front());
    }
  }
  return condition;
}

std::string Fish(const CLI::App& app) {
  std::string script = "complete -c lenetctl -f\n";
  const auto add_words = [&script](const std::string& condition, const std::string& words) {
    absl::StrAppend(&script, "complete -c lenetctl ", condition, "-a ", FishQuoted(words), "\n");
  };
  const auto add_flag = [&](const std::string& condition, const CLI::Option& flag) {
    absl::StrAppend(&script, "complete -c lenetctl ", condition, "-l ", flag.get_lnames().front(),
                    TakesFile(flag)    ? " -r -F"
                    : TakesValue(flag) ? " -x"
                                       : "",
                    TakesContext(flag) ? absl::StrCat(" -a ", FishQuoted(absl::StrCat("(", kContexts, ")"))) : "",
                    " -d ", FishQuoted(flag.get_description()), "\n");
  };
  const auto add_commands = [&](const std::string& condition, const CLI::App& of) {
    for (const CLI::App* command : CommandsOf(of)) {
      absl::StrAppend(&script, "complete -c lenetctl -n ", condition, " -a ", command->get_name(), " -d ",
                      FishQuoted(command->get_description()), "\n");
    }
  };
  for (const CLI::Option* flag : Flags(app)) add_flag("", *flag);
  add_commands("__fish_use_subcommand", app);
  const std::vector<Path> paths = Paths(app);
  for (const Path& path : paths) {
    const std::string seen = FishCondition(path, paths);
    const std::string condition = absl::StrCat("-n ", FishQuoted(seen), " ");
    for (const CLI::Option* flag : Flags(*path.command)) add_flag(condition, *flag);
    if (path.command->get_name() == "completion") add_words(condition, kShells);
    const std::string inner = CommandNames(*path.command, " ");
    if (!inner.empty()) {
      add_commands(FishQuoted(absl::StrCat(seen, "; and not __fish_seen_subcommand_from ", inner)), *path.command);
    }
    const std::string arguments = ArgumentsOf(*path.command);
    if (!arguments.empty()) add_words(condition, absl::StrCat("(", arguments, ")"));
  }
  return script;
}

}  // namespace

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string CommandNames(const CLI::App& app, absl::string_view separator) {
  return absl::StrJoin(CommandsOf(app), separator,
                       [](std::string* out, const CLI::App* command) { out->append(command->get_name()); });
}

std::optional<std::string> CompletionScript(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return Bash(app);
  // zsh runs bash's functions of this kind.
  if (shell == "zsh")
    return absl::StrCat("#compdef lenetctl\nautoload -U +X bashcompinit && bashcompinit\n", Bash(app));
  if (shell == "fish") return Fish(app);
  return std::nullopt;
}

}  // namespace lenet::ctl
