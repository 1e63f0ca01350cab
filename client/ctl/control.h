// The commands that change jobs: stop, pause, resume, rm.
#ifndef LENET_CLIENT_CTL_CONTROL_H_
#define LENET_CLIENT_CTL_CONTROL_H_

#include "client/client.h"
#include "client/ctl/command_line.h"
#include "client/ctl/output.h"

namespace lenet::ctl {

// All give the exit code. Those of several jobs go on after one that is refused, and give the code of the first.
int Stop(const Client& client, const CommandLine& command_line, Output* output);
int Pause(const Client& client, const CommandLine& command_line, Output* output);
int Resume(const Client& client, const CommandLine& command_line, Output* output);
int Remove(const Client& client, const CommandLine& command_line, Output* output);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_CONTROL_H_
