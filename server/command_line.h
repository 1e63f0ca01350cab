// lenetd's command line.
#ifndef LENET_SERVER_COMMAND_LINE_H_
#define LENET_SERVER_COMMAND_LINE_H_

#include <optional>

#include "server/config.h"

namespace lenet {

struct CommandLine {
  std::optional<ServerConfig> config;  // not set: the program ends now
  int exit_code = kExitOk;
  ConfigSources sources;
  bool file_found = false;
};

// Reads the command line, the environment and the configuration file. Prints help, the version, the configuration if
// it is to be checked, or all that is wrong.
CommandLine ParseCommandLine(int argc, const char* const* argv);

}  // namespace lenet

#endif  // LENET_SERVER_COMMAND_LINE_H_
