// lenetctl's command line.
#ifndef LENET_CLIENT_CTL_COMMAND_LINE_H_
#define LENET_CLIENT_CTL_COMMAND_LINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/client.h"
#include "client/ctl/output.h"
#include "client/ctl/spec_flags.h"
#include "lenet/v1/training_service.pb.h"

namespace lenet::ctl {

enum class Command { kSubmit, kWatch, kList, kShow, kStop, kPause, kResume, kRemove, kCheckpoints, kInfo, kDatasets };

struct CommandLine {
  Command command = Command::kInfo;
  ClientOptions client;
  std::string lenetctl;  // how to call it for the same server, for advice to the user
  bool timeout_given = false;
  bool json = false;
  std::string job_id;                // kWatch, kShow, kStop, kCheckpoints
  std::vector<std::string> job_ids;  // kPause, kResume, kRemove
  // kSubmit
  v1::StartRequest start;  // without the spec; the request id as given; empty: to be chosen
  SpecFlags spec;
  bool detach = false;
  // kSubmit, kWatch
  v1::StreamMetricsRequest stream;  // without the job's id
  // kList
  std::vector<v1::JobState> states;
  int64_t limit = 0;
  // kStop
  bool abort = false;
  bool wait = false;
};

// `command_line` is a new one. `server` is the value of LENET_SERVER, or empty. Gives an exit code if there is nothing
// left to run: what needs no server was done, help and contexts for two, or it was said what is wrong with the
// arguments.
std::optional<int> ParseCommandLine(const std::vector<std::string>& arguments, const std::string& server,
                                    Output* output, CommandLine* command_line);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_COMMAND_LINE_H_
