// Scripts by which shells complete lenetctl's command line, made from the command line's own description.
#ifndef LENET_CLIENT_CTL_COMPLETION_H_
#define LENET_CLIENT_CTL_COMPLETION_H_

#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/string_view.h"

namespace lenet::ctl {

// Those of the program or of one of its commands, in the order in which help lists them.
std::vector<const CLI::App*> CommandsOf(const CLI::App& app);
std::string CommandNames(const CLI::App& app, absl::string_view separator);

// For "bash", "zsh" or "fish"; nothing for another shell. Commands, flags, files where a flag takes one, and the ids of
// the server's newest jobs where a command takes jobs.
std::optional<std::string> CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_COMPLETION_H_
