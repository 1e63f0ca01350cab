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

std::vector<const CLI::App*> Commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

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

bool TakesJobs(const CLI::App& command) {
  const std::vector<const CLI::Option*> options = command.get_options();
  return std::any_of(options.begin(), options.end(), [](const CLI::Option* option) {
    return option->get_positional() && option->get_name(/*positional=*/true) == "ID";
  });
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
  for (const CLI::App* command : Commands(app)) add(*command);
  return absl::StrJoin(names, "|");
}

std::string Bash(const CLI::App& app) {
  const std::string names = absl::StrJoin(
      Commands(app), "|", [](std::string* out, const CLI::App* command) { out->append(command->get_name()); });
  std::string script = absl::StrCat(
      "_lenetctl() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case ${COMP_WORDS[i]} in ",
      names,
      ") command=${COMP_WORDS[i]}; break;; esac\n"
      "  done\n"
      "  case $prev in\n"
      "    ",
      Pattern(app, TakesFile),
      ") COMPREPLY=($(compgen -f -- \"$cur\")); return;;\n"
      "    ",
      Pattern(app, [](const CLI::Option& flag) { return TakesValue(flag) && !TakesFile(flag); }),
      ") COMPREPLY=(); return;;\n"
      "  esac\n"
      "  case $command in\n"
      "    '') words='",
      absl::StrReplaceAll(names, {{"|", " "}}), " ", Words(Flags(app)), "';;\n");
  for (const CLI::App* command : Commands(app)) {
    std::string flags = Words(FlagsOf(app, *command));
    if (command->get_name() == "completion") absl::StrAppend(&flags, " ", kShells);
    absl::StrAppend(&script, "    ", command->get_name(), ") words='", flags, "'");
    if (TakesJobs(*command)) absl::StrAppend(&script, "; [[ $cur == -* ]] || words=$(", kJobIds, ")");
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

std::string Fish(const CLI::App& app) {
  std::string script = "complete -c lenetctl -f\n";
  const auto add_flag = [&script](const std::string& condition, const CLI::Option& flag) {
    absl::StrAppend(&script, "complete -c lenetctl ", condition, "-l ", flag.get_lnames().front(),
                    TakesFile(flag)    ? " -r -F"
                    : TakesValue(flag) ? " -x"
                                       : "",
                    " -d ", FishQuoted(flag.get_description()), "\n");
  };
  for (const CLI::Option* flag : Flags(app)) add_flag("", *flag);
  for (const CLI::App* command : Commands(app)) {
    absl::StrAppend(&script, "complete -c lenetctl -n __fish_use_subcommand -a ", command->get_name(), " -d ",
                    FishQuoted(command->get_description()), "\n");
    const std::string condition = absl::StrCat("-n '__fish_seen_subcommand_from ", command->get_name(), "' ");
    for (const CLI::Option* flag : Flags(*command)) add_flag(condition, *flag);
    if (command->get_name() == "completion") {
      absl::StrAppend(&script, "complete -c lenetctl ", condition, "-a ", FishQuoted(kShells), "\n");
    }
    if (TakesJobs(*command)) {
      absl::StrAppend(&script, "complete -c lenetctl ", condition, "-a ", FishQuoted(absl::StrCat("(", kJobIds, ")")),
                      "\n");
    }
  }
  return script;
}

}  // namespace

std::optional<std::string> CompletionScript(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return Bash(app);
  // zsh runs bash's functions of this kind.
  if (shell == "zsh")
    return absl::StrCat("#compdef lenetctl\nautoload -U +X bashcompinit && bashcompinit\n", Bash(app));
  if (shell == "fish") return Fish(app);
  return std::nullopt;
}

}  // namespace lenet::ctl
