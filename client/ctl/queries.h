// The commands that ask once: list, show, checkpoints, info, datasets.
#ifndef LENET_CLIENT_CTL_QUERIES_H_
#define LENET_CLIENT_CTL_QUERIES_H_

#include "client/client.h"
#include "client/ctl/command_line.h"
#include "client/ctl/output.h"

namespace lenet::ctl {

// All give the exit code.
int List(const Client& client, const CommandLine& command_line, Output* output);
int Show(const Client& client, const CommandLine& command_line, Output* output);
int Checkpoints(const Client& client, const CommandLine& command_line, Output* output);
int Info(const Client& client, const CommandLine& command_line, Output* output);
int Datasets(const Client& client, const CommandLine& command_line, Output* output);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_QUERIES_H_
