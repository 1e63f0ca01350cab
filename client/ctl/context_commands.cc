#include "client/ctl/context_commands.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/ctl/context_file.h"
#include "client/ctl/json.h"
#include "client/ctl/table.h"
#include "client/ctl/text.h"
#include "client/ctl/value_flags.h"
#include "google/protobuf/struct.pb.h"

namespace lenet::ctl {
namespace {

using Action = ContextCommand::Action;

bool UsesTls(const Context& context) { return context.tls || !context.ca.empty() || !context.cert.empty(); }

std::string Json(const std::string& name, bool current, const Context& context) {
  google::protobuf::Struct object;
  auto& fields = *object.mutable_fields();
  fields["name"].set_string_value(name);
  fields["current"].set_bool_value(current);
  fields["server"].set_string_value(context.server);
  fields["tls"].set_bool_value(UsesTls(context));
  const auto add = [&fields](const char* key, const std::string& value) {
    if (!value.empty()) fields[key].set_string_value(value);
  };
  add("ca", context.ca);
  add("cert", context.cert);
  add("key", context.key);
  add("token_file", context.token_file);
  return JsonLine(object);
}

absl::Status List(bool json, Output* output) {
  const absl::StatusOr<Contexts> contexts = ReadContexts(ContextPath());
  if (!contexts.ok()) return contexts.status();
  Table table({{"CURRENT"}, {"NAME"}, {"SERVER"}});
  for (const auto& [name, unused] : contexts->contexts) {
    const absl::StatusOr<Context> context = contexts->Find(name);
    const bool current = name == contexts->current;
    if (json) {
      output->Write(Json(name, current, *context));
    } else {
      table.AddRow({current ? "*" : "", name, context->server});
    }
  }
  if (!json) output->Write(table.Render(output->width()));
  return absl::OkStatus();
}

absl::Status Show(const ContextCommand& command, const ServerFlags& flags, bool json, Output* output) {
  const absl::StatusOr<Contexts> contexts = ReadContexts(ContextPath());
  if (!contexts.ok()) return contexts.status();
  const absl::StatusOr<std::string> name = command.name.empty() ? flags.ContextName(*contexts) : command.name;
  if (!name.ok()) return name.status();
  if (name->empty()) return absl::NotFoundError("no context is current; lenetctl context use NAME makes one so");
  const absl::StatusOr<Context> context = contexts->Find(*name);
  if (!context.ok()) return context.status();
  const bool current = *name == contexts->current;
  if (json) {
    output->Write(Json(*name, current, *context));
    return absl::OkStatus();
  }
  FieldList fields;
  fields.Add("context", absl::StrCat(*name, current ? " (current)" : ""));
  fields.Add("server", context->server);
  fields.Add("tls", UsesTls(*context) ? "yes" : "");
  fields.Add("ca", context->ca);
  fields.Add("cert", context->cert);
  fields.Add("key", context->key);
  fields.Add("token file", context->token_file);
  fields.Add("file", contexts->path);
  output->Write(fields.Render());
  return absl::OkStatus();
}

// What the flags say, with paths that hold in any folder.
absl::StatusOr<Context> NewContext(const ServerFlags& flags) {
  Context context = flags.Given();
  if (absl::Status valid = CheckContext(context); !valid.ok()) return valid;
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  if (error) return absl::UnavailableError(absl::StrCat("the working folder: ", error.message()));
  return Resolved(context, here);
}

absl::Status Change(const ContextCommand& command, const ServerFlags& flags, Contexts* contexts) {
  if (command.action == Action::kSet) {
    if (absl::Status named = CheckContextName(command.name); !named.ok()) return named;
    absl::StatusOr<Context> context = NewContext(flags);
    if (!context.ok()) return context.status();
    contexts->contexts[command.name] = *std::move(context);
    return absl::OkStatus();
  }
  if (absl::Status known = contexts->Find(command.name).status(); !known.ok()) return known;
  if (command.action == Action::kUse) {
    contexts->current = command.name;
  } else {
    contexts->contexts.erase(command.name);
    if (contexts->current == command.name) contexts->current.clear();
  }
  return absl::OkStatus();
}

}  // namespace

void AddContextCommands(CLI::App* app, ContextCommand* command) {
  CLI::App* context = app->add_subcommand("context", "Name servers, with what reaching them takes, and choose one");
  context->require_subcommand(0, 1);
  const auto add = [=](const char* name, const char* help, Action action) {
    CLI::App* added = context->add_subcommand(name, help);
    added->callback([=] { command->action = action; });
    return added;
  };
  const auto add_name = [=](CLI::App* to, const char* help) { return AddText(to, "NAME", "", help, &command->name); };
  add("list", "List the contexts", Action::kList);
  add_name(add("show", "Show a context", Action::kShow), "The context's name; default: the one in use");
  add_name(add("use", "Make a context the current one, whose server is used where none is named", Action::kUse),
           "The context's name")
      ->required();
  add_name(add("set",
               "Add a context, or replace it, by what --server, --tls, --ca, --cert, --key and --token-file say; "
               "comments in the file are lost",
               Action::kSet),
           "The context's name: 1 to 64 letters, digits, '-', '_' and '.'")
      ->required();
  add_name(add("remove", "Remove a context; the files that it names stay", Action::kRemove), "The context's name")
      ->required();
}

absl::Status RunContextCommand(const ContextCommand& command, const ServerFlags& flags, bool json, Output* output) {
  if (command.action != Action::kSet && !(flags.Given() == Context{})) {
    return absl::InvalidArgumentError(
        "--server, --tls, --ca, --cert, --key and --token-file say nothing to this command; context set takes them");
  }
  if (!flags.context().empty() && (command.action != Action::kShow || !command.name.empty())) {
    return absl::InvalidArgumentError("--context says nothing to this command, which names its context itself");
  }
  const char* done = "current";
  switch (command.action) {
    case Action::kNone:
      return absl::InternalError("no command");
    case Action::kList:
      return List(json, output);
    case Action::kShow:
      return Show(command, flags, json, output);
    case Action::kSet:
      done = "set";
      break;
    case Action::kRemove:
      done = "removed";
      break;
    case Action::kUse:
      break;
  }
  absl::Status status =
      ChangeContexts(ContextPath(), [&](Contexts* contexts) { return Change(command, flags, contexts); });
  if (status.ok() && !json) output->Write(Printable(absl::StrCat("context ", command.name, ": ", done)) + "\n");
  return status;
}

}  // namespace lenet::ctl
