// `lenetctl context`: the commands that read and change the file of contexts.
#ifndef LENET_CLIENT_CTL_CONTEXT_COMMANDS_H_
#define LENET_CLIENT_CTL_CONTEXT_COMMANDS_H_

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "client/ctl/output.h"
#include "client/ctl/server_flags.h"

namespace lenet::ctl {

struct ContextCommand {
  enum class Action { kNone, kList, kShow, kUse, kSet, kRemove };
  Action action = Action::kNone;
  std::string name;  // empty: none given
};

// Adds `context` with its commands; parsing sets `command`, which outlives `app`.
void AddContextCommands(CLI::App* app, ContextCommand* command);

// INVALID_ARGUMENT and NOT_FOUND are the user's errors.
absl::Status RunContextCommand(const ContextCommand& command, const ServerFlags& flags, bool json, Output* output);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_CONTEXT_COMMANDS_H_
