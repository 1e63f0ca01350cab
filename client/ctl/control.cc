#include "client/ctl/control.h"

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/json.h"
#include "client/ctl/report.h"
#include "client/ctl/text.h"

namespace lenet::ctl {
namespace {

// How long a command waits for what the server has to bring about first.
absl::Duration Patience(const Client& client, const CommandLine& command_line) {
  return command_line.timeout_given ? client.options().timeout : absl::InfiniteDuration();
}

void WriteJob(const v1::Job& job, const CommandLine& command_line, Output* output) {
  if (command_line.json) return output->Write(JsonLine(job));
  output->Write(Printable(absl::StrCat("job ", job.id(), ": ", StateName(job.state()), " at step ",
                                       job.progress().step(), job.reason().empty() ? "" : ": ", job.reason())) +
                "\n");
}

// `call` writes what came of it.
int ForEachJob(const Client& client, const CommandLine& command_line, Output* output,
               const std::function<absl::Status(const std::string& job_id)>& call) {
  int code = kSuccess;
  for (const std::string& job_id : command_line.job_ids) {
    const absl::Status status = call(job_id);
    if (status.ok()) continue;
    const int error = ReportError(client, status, output);
    if (code == kSuccess) code = error;
    // The same would become of the other jobs.
    if (error == kUnreachable || error == kInterrupted) break;
  }
  return code;
}

}  // namespace

int Stop(const Client& client, const CommandLine& command_line, Output* output) {
  const absl::Duration wait = command_line.wait ? Patience(client, command_line) : absl::ZeroDuration();
  absl::StatusOr<v1::Job> job =
      client.Stop(command_line.job_id, command_line.abort ? v1::StopRequest::ABORT : v1::StopRequest::CHECKPOINT, wait);
  if (!job.ok()) return ReportError(client, job.status(), output);
  WriteJob(*job, command_line, output);
  return kSuccess;
}

int Pause(const Client& client, const CommandLine& command_line, Output* output) {
  return ForEachJob(client, command_line, output, [&](const std::string& job_id) {
    absl::StatusOr<v1::Job> job = client.Pause(job_id, Patience(client, command_line));
    if (job.ok()) WriteJob(*job, command_line, output);
    return job.status();
  });
}

int Resume(const Client& client, const CommandLine& command_line, Output* output) {
  return ForEachJob(client, command_line, output, [&](const std::string& job_id) {
    absl::StatusOr<v1::Job> job = client.Resume(job_id);
    if (job.ok()) WriteJob(*job, command_line, output);
    return job.status();
  });
}

int Remove(const Client& client, const CommandLine& command_line, Output* output) {
  return ForEachJob(client, command_line, output, [&](const std::string& job_id) {
    absl::Status status = client.DeleteJob(job_id);
    if (status.ok() && !command_line.json) output->Write(Printable(absl::StrCat("job ", job_id, ": removed")) + "\n");
    return status;
  });
}

}  // namespace lenet::ctl
