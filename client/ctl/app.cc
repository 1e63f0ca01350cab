#include "client/ctl/app.h"

#include <optional>

#include "client/client.h"
#include "client/ctl/command_line.h"
#include "client/ctl/control.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/follow.h"
#include "client/ctl/queries.h"

namespace lenet::ctl {
namespace {

int RunCommand(const CommandLine& command_line, Output* output) {
  const Client client(command_line.client);
  switch (command_line.command) {
    case Command::kSubmit:
      return Submit(client, command_line, output);
    case Command::kWatch:
      return Watch(client, command_line, output);
    case Command::kList:
      return List(client, command_line, output);
    case Command::kShow:
      return Show(client, command_line, output);
    case Command::kStop:
      return Stop(client, command_line, output);
    case Command::kPause:
      return Pause(client, command_line, output);
    case Command::kResume:
      return Resume(client, command_line, output);
    case Command::kRemove:
      return Remove(client, command_line, output);
    case Command::kCheckpoints:
      return Checkpoints(client, command_line, output);
    case Command::kInfo:
      return Info(client, command_line, output);
    case Command::kDatasets:
      return Datasets(client, command_line, output);
  }
  return kError;
}

}  // namespace

int RunApp(const std::vector<std::string>& arguments, const std::string& server, const std::atomic<bool>* cancelled,
           Output* output) {
  CommandLine command_line;
  command_line.client.cancelled = cancelled;
  std::optional<int> code = ParseCommandLine(arguments, server, output, &command_line);
  if (!code) code = RunCommand(command_line, output);
  if (output->ok()) return *code;
  output->WriteError("lenetctl: cannot write to standard output\n");
  return kError;
}

}  // namespace lenet::ctl
