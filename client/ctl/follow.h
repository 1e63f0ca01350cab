// `lenetctl submit` and `lenetctl watch`.
#ifndef LENET_CLIENT_CTL_FOLLOW_H_
#define LENET_CLIENT_CTL_FOLLOW_H_

#include "client/client.h"
#include "client/ctl/command_line.h"
#include "client/ctl/output.h"

namespace lenet::ctl {

// Both give the exit code.
int Submit(const Client& client, const CommandLine& command_line, Output* output);
int Watch(const Client& client, const CommandLine& command_line, Output* output);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_FOLLOW_H_
