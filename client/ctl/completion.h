// Scripts by which shells complete lenetctl's command line, made from the command line's own description.
#ifndef LENET_CLIENT_CTL_COMPLETION_H_
#define LENET_CLIENT_CTL_COMPLETION_H_

#include <optional>
#include <string>

#include "CLI/CLI.hpp"

namespace lenet::ctl {

// For "bash", "zsh" or "fish"; nothing for another shell. Commands, flags, files where a flag takes one, and the ids of
// the server's newest jobs where a command takes jobs.
std::optional<std::string> CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_COMPLETION_H_
