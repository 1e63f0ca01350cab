#include "client/ctl/command_line.h"

#include <cmath>
#include <limits>
#include <sstream>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/ctl/completion.h"
#include "client/ctl/context_commands.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/server_flags.h"
#include "client/ctl/start_flags.h"
#include "client/ctl/text.h"
#include "client/ctl/value_flags.h"

namespace lenet::ctl {
namespace {

constexpr char kFooter[] =
    "Exit codes: 0 success; 1 error; 2 wrong arguments; 3 the job failed; 4 the job was stopped;\n"
    "5 the server cannot be reached or is not ready; 130 interrupted (the job goes on).";

// A name of one of the enum's values, in the form "step-losses" for STEP_LOSSES; 0, which means none given, has no
// name.
template <typename Enum>
std::optional<Enum> ParseName(const google::protobuf::EnumDescriptor* descriptor, const std::string& name) {
  for (int i = 0; i < descriptor->value_count(); ++i) {
    const google::protobuf::EnumValueDescriptor* value = descriptor->value(i);
    if (value->number() == 0) continue;
    if (absl::StrReplaceAll(absl::AsciiStrToLower(value->name()), {{"_", "-"}}) == name) {
      return static_cast<Enum>(value->number());
    }
  }
  return std::nullopt;
}

std::string Names(const google::protobuf::EnumDescriptor* descriptor) {
  std::string names;
  for (int i = 0; i < descriptor->value_count(); ++i) {
    if (descriptor->value(i)->number() == 0) continue;
    absl::StrAppend(&names, names.empty() ? "" : ",",
                    absl::StrReplaceAll(absl::AsciiStrToLower(descriptor->value(i)->name()), {{"_", "-"}}));
  }
  return names;
}

// An option whose value is a list of enum names, separated by commas.
template <typename Enum>
void AddNames(CLI::App* command, const std::string& flag, const google::protobuf::EnumDescriptor* descriptor,
              std::vector<Enum>* values, const std::string& help) {
  AddList(command, flag, "NAME,...", absl::StrCat(help, ": ", Names(descriptor)), [=](const std::string& name) {
    const std::optional<Enum> value = ParseName<Enum>(descriptor, name);
    if (value) values->push_back(*value);
    return value ? "" : absl::StrCat("\"", name, "\" is none of ", Names(descriptor));
  });
}

CLI::Option* AddSeconds(CLI::App* command, const std::string& flag, absl::Duration* duration, const std::string& help,
                        double least) {
  return AddValue(command, flag, "SECONDS", help, [=](const std::string& text) {
    double seconds;
    if (!ParseNumber(text, &seconds).empty() || !(seconds >= least) || !std::isfinite(seconds)) {
      return absl::StrCat("\"", text, "\" is not a time of at least ", least, " seconds");
    }
    *duration = absl::Seconds(seconds);
    return std::string();
  });
}

// What the options are bound to while they are parsed.
struct Bindings {
  ServerFlags server;
  std::string name;
  std::string request_id;
  std::optional<uint64_t> from;
  std::optional<int32_t> every;
  std::vector<int32_t> ranks;
  std::vector<v1::RecordKind> kinds;
  std::optional<int64_t> limit;
  std::string shell;
  ContextCommand context;
};

void AddJobId(CLI::App* command, CommandLine* result) {
  AddText(command, "ID", "", "The job's id", &result->job_id)->required();
}

// A command that takes several jobs.
void AddJobsCommand(CLI::App* app, const std::string& name, const std::string& help, Command value,
                    CommandLine* result) {
  CLI::App* command = app->add_subcommand(name, help);
  AddTexts(command, "ID", "The jobs' ids", &result->job_ids)->required();
  command->callback([=] { result->command = value; });
}

void AddFollowOptions(CLI::App* command, Bindings* bindings, CommandLine* result) {
  AddNumber(command, "--every",
            "Print the losses of every N-th step; default: about 50 steps, on a terminal none, with --json all",
            &bindings->every, int32_t{1});
  AddSeconds(command, "--reconnect", &result->client.reconnect_timeout,
             "How long to try to get a lost connection back; default 60; 0: not at all", 0);
}

void AddSubmit(CLI::App* app, Bindings* bindings, CommandLine* result) {
  CLI::App* command = app->add_subcommand("submit", "Queue a job and follow it to its end");
  result->spec.AddTo(command);
  AddStartFlags(command, &result->start);
  AddText(command, "--name", "TEXT", "Your own words for the job, at most 64 bytes", &bindings->name);
  AddText(command, "--request-id", "ID", "Makes repeating the command safe: one job for one id. Default: a random one",
          &bindings->request_id);
  command->add_flag("--detach", result->detach, "Print the job's id alone (with --json: the job) and do not follow it");
  AddFollowOptions(command, bindings, result);
  command->callback([result] { result->command = Command::kSubmit; });
}

void AddWatch(CLI::App* app, Bindings* bindings, CommandLine* result) {
  CLI::App* command = app->add_subcommand("watch", "Follow a job from its first record to its end");
  AddJobId(command, result);
  AddNumber(command, "--from", "Sequence of the first record wanted; default 1: the whole log", &bindings->from);
  AddIntList(command, "--ranks", "RANK,...", "Ranks whose step losses are wanted; default all", &bindings->ranks);
  AddNames(command, "--kinds", v1::RecordKind_descriptor(), &bindings->kinds, "Records wanted, default all");
  AddFollowOptions(command, bindings, result);
  command->callback([result] { result->command = Command::kWatch; });
}

void AddQueries(CLI::App* app, Bindings* bindings, CommandLine* result) {
  CLI::App* list = app->add_subcommand("list", "List jobs, newest first");
  AddNames(list, "--state", v1::JobState_descriptor(), &result->states, "States wanted, default all");
  AddNumber(list, "--limit", "At most so many jobs; 0: all; default 50", &bindings->limit, int64_t{0});
  list->callback([result] { result->command = Command::kList; });

  CLI::App* show = app->add_subcommand("show", "Show a job");
  AddJobId(show, result);
  show->callback([result] { result->command = Command::kShow; });

  CLI::App* checkpoints = app->add_subcommand("checkpoints", "List a job's checkpoints, oldest first");
  AddJobId(checkpoints, result);
  checkpoints->callback([result] { result->command = Command::kCheckpoints; });

  app->add_subcommand("info", "Show the server: version, backend, devices")->callback([result] {
    result->command = Command::kInfo;
  });
  app->add_subcommand("datasets", "List the server's data sets")->callback([result] {
    result->command = Command::kDatasets;
  });
}

void AddControls(CLI::App* app, CommandLine* result) {
  CLI::App* stop = app->add_subcommand("stop", "End a job early: finish the step, save a checkpoint, stop");
  AddJobId(stop, result);
  stop->add_flag("--abort", result->abort, "At once, saving nothing");
  stop->add_flag("--wait", result->wait, "Return once the job has ended; as long as that takes, or --timeout if given");
  stop->callback([result] { result->command = Command::kStop; });

  AddJobsCommand(app, "pause", "Save the state of jobs, free their devices and hold them until resume", Command::kPause,
                 result);
  AddJobsCommand(app, "resume", "Queue paused jobs again", Command::kResume, result);
  AddJobsCommand(app, "rm", "Remove ended jobs from the server: their records, losses and checkpoints",
                 Command::kRemove, result);
}

void AddCompletion(CLI::App* app, Bindings* bindings) {
  CLI::App* command = app->add_subcommand("completion", "Print a script by which a shell completes lenetctl");
  AddText(command, "SHELL", "", "bash, zsh or fish", &bindings->shell)->required();
}

void AddFooter(CLI::App* app) {
  for (CLI::App* command : app->get_subcommands([](CLI::App*) { return true; })) {
    command->footer(absl::StrCat("Also: the options of lenetctl --help.\n", kFooter));
    AddFooter(command);
  }
}

// What the bound values mean for the result.
void Finish(const Bindings& bindings, CommandLine* result) {
  result->start.set_name(bindings.name);
  result->start.set_request_id(bindings.request_id);
  result->stream.set_from_sequence(bindings.from.value_or(0));
  result->stream.set_every_n_steps(bindings.every.value_or(0));
  for (int32_t rank : bindings.ranks) result->stream.add_ranks(rank);
  for (v1::RecordKind kind : bindings.kinds) result->stream.add_kinds(kind);
  const int64_t limit = bindings.limit.value_or(50);
  result->limit = limit > 0 ? limit : std::numeric_limits<int64_t>::max();
}

// The command that stands among the arguments, "context use" for one; empty if none does.
std::string CommandOf(const CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  const CLI::App* innermost = &app;
  for (const std::string& argument : arguments) {
    for (const CLI::App* command : CommandsOf(*innermost)) {
      if (command->get_name() != argument) continue;
      words.push_back(argument);
      innermost = command;
      break;
    }
  }
  return absl::StrJoin(words, " ");
}

// What the arguments name, down to what has no commands of its own or where none of them is named.
const CLI::App& Innermost(const CLI::App& app) {
  const std::vector<CLI::App*> named = app.get_subcommands();
  return named.empty() ? app : Innermost(*named.front());
}

// What to say of the arguments that CLI11 has found no use for.
std::string Unexpected(const CLI::App& app) {
  const std::vector<std::string> rest = app.remaining(/*recurse=*/true);
  const CLI::App& innermost = Innermost(app);
  if (CommandsOf(innermost).empty() || rest.empty() || absl::StartsWith(rest.front(), "-")) {
    return absl::StrCat("unexpected: ", absl::StrJoin(rest, " "));
  }
  const std::string group = &innermost == &app ? "" : absl::StrCat(innermost.get_name(), " ");
  return absl::StrCat("there is no command \"", group, rest.front(), "\"; there are ", CommandNames(innermost, ", "));
}

}  // namespace

std::optional<int> ParseCommandLine(const std::vector<std::string>& arguments, const std::string& server,
                                    Output* output, CommandLine* command_line) {
  CommandLine& result = *command_line;
  Bindings bindings;
  CLI::App app("lenetctl: train LeNet-type networks on a lenetd server", "lenetctl");
  app.footer(kFooter);
  // Not CLI11's requirement of one: it would hide which word is no command.
  app.require_subcommand(0, 1);
  // Options of all commands may stand behind the command too.
  app.fallthrough();
  app.set_version_flag("--version", std::string("lenetctl " LENET_VERSION));
  bindings.server.AddTo(&app, server);
  CLI::Option* timeout_option =
      AddSeconds(&app, "--timeout", &result.client.timeout, "Longest time for one call; default 10", 0.001);
  app.add_flag("--json", result.json, "One JSON object a line on standard output, and nothing else");
  AddSubmit(&app, &bindings, &result);
  AddWatch(&app, &bindings, &result);
  AddControls(&app, &result);
  AddQueries(&app, &bindings, &result);
  AddContextCommands(&app, &bindings.context);
  AddCompletion(&app, &bindings);
  AddFooter(&app);

  const auto usage_error = [&](absl::string_view message) {
    const std::string name = CommandOf(app, arguments);
    output->WriteError(
        absl::StrCat("lenetctl: ", Printable(message), "\nSee lenetctl ", name, name.empty() ? "" : " ", "--help.\n"));
    return kUsage;
  };
  for (const std::string& argument : arguments) {
    if (!IsUtf8(argument)) return usage_error(absl::StrCat("argument \"", argument, "\" is not UTF-8"));
    const std::string error = CheckForm(app, argument);
    if (!error.empty()) return usage_error(error);
  }
  try {
    // CLI11 takes its arguments last first.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    if (const CLI::App& innermost = Innermost(app); &innermost == &app) {
      return usage_error("a command is needed");
    } else if (!CommandsOf(innermost).empty()) {
      return usage_error(absl::StrCat(innermost.get_name(), " needs one of ", CommandNames(innermost, ", ")));
    }
    if (!bindings.shell.empty()) {
      const std::optional<std::string> script = CompletionScript(app, bindings.shell);
      if (!script) return usage_error(absl::StrCat("shell \"", bindings.shell, "\" is none of bash, zsh, fish"));
      output->Write(*script);
      return kSuccess;
    }
    if (bindings.context.action != ContextCommand::Action::kNone) {
      const absl::Status status = RunContextCommand(bindings.context, bindings.server, result.json, output);
      if (status.ok()) return kSuccess;
      if (absl::IsInvalidArgument(status) || absl::IsNotFound(status)) return usage_error(status.message());
      output->WriteError(absl::StrCat("lenetctl: ", Printable(status.message()), "\n"));
      return kError;
    }
    const std::string error = bindings.server.Apply(&result.client);
    if (!error.empty()) return usage_error(error);
  } catch (const CLI::Success& success) {
    std::ostringstream text;
    bindings.server.ShowVariables();
    app.exit(success, text, text);
    output->Write(text.str());
    return kSuccess;
  } catch (const CLI::ExtrasError&) {
    return usage_error(Unexpected(app));
  } catch (const CLI::Error& error) {
    return usage_error(error.what());
  }
  Finish(bindings, &result);
  result.lenetctl = bindings.server.Lenetctl();
  result.timeout_given = timeout_option->count() > 0;
  return std::nullopt;
}

}  // namespace lenet::ctl
