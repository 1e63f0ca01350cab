#include "client/ctl/follow.h"

#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/job_view.h"
#include "client/ctl/json.h"
#include "client/ctl/report.h"
#include "client/ctl/text.h"

namespace lenet::ctl {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);

// Step losses a second that a progress display asks for: all that eyes can follow, however fast the job is.
constexpr double kDisplayRate = 200;

constexpr char kDefaultDataset[] = "fashion-mnist";

std::string RandomRequestId() {
  std::random_device random;
  return absl::StrFormat("lenetctl-%08x%08x%08x%08x", random(), random(), random(), random());
}

// Sets `*name`, or reports why there is none and gives the exit code.
std::optional<int> ChooseDataset(const Client& client, Output* output, std::string* name) {
  absl::StatusOr<std::vector<v1::DatasetInfo>> datasets = client.ListDatasets();
  if (!datasets.ok()) return ReportError(client, datasets.status(), output);
  std::vector<std::string> names;
  for (const v1::DatasetInfo& dataset : *datasets) {
    if (!dataset.valid()) continue;
    if (dataset.name() == kDefaultDataset) {
      names = {kDefaultDataset};
      break;
    }
    names.push_back(dataset.name());
  }
  if (names.size() == 1) {
    *name = names[0];
    return std::nullopt;
  }
  const std::string server = Printable(client.options().address);
  if (names.empty()) {
    output->WriteError(
        absl::StrCat("lenetctl: the server ", server, " has no valid data set; lenetctl datasets says more\n"));
    return kError;
  }
  output->WriteError(absl::StrCat("lenetctl: the server ", server, " has no data set ", kDefaultDataset,
                                  ", so --dataset must name one of ", Printable(absl::StrJoin(names, ", ")), "\n"));
  return kUsage;
}

void ReportDetached(const std::string& job_id, const CommandLine& command_line, Output* output) {
  const std::string lenetctl = Printable(command_line.lenetctl);
  const std::string id = Printable(job_id);
  output->WriteError(absl::StrCat("Interrupted; job ", id, " goes on.\n  to follow it: ", lenetctl, " watch ", id,
                                  "\n  to stop it:   ", lenetctl, " stop ", id, "\n"));
}

int ReportEnd(const std::string& job_id, const v1::Terminal& terminal, Output* output) {
  switch (terminal.state()) {
    case v1::SUCCEEDED:
      return kSuccess;
    case v1::STOPPED:
      return kJobStopped;
    default:
      break;
  }
  const std::string why = terminal.has_failure() ? FormatFailure(terminal.failure()) : terminal.reason();
  output->WriteError(Printable(absl::StrCat("lenetctl: job ", job_id, " failed: ", why)) + "\n");
  return kJobFailed;
}

// The job ended before the first record wanted.
int ReportNoRecords(const Client& client, const std::string& job_id, uint64_t from, Output* output) {
  absl::StatusOr<v1::Job> job = client.GetJob(job_id);
  if (!job.ok()) return ReportError(client, job.status(), output);
  output->WriteError(Printable(absl::StrCat("lenetctl: job ", job_id, " has ended (", StateName(job->state()),
                                            ") and has no records from ", from, " on")) +
                     "\n");
  v1::Terminal terminal;
  terminal.set_state(job->state());
  terminal.set_reason(job->reason());
  if (job->has_failure()) *terminal.mutable_failure() = job->failure();
  return ReportEnd(job_id, terminal, output);
}

int Follow(const Client& client, const v1::Job& job, const CommandLine& command_line, Output* output) {
  v1::StreamMetricsRequest request = command_line.stream;
  request.set_job_id(job.id());
  const bool every_step = request.every_n_steps() > 0;
  if (output->is_terminal() && !command_line.json && !every_step) request.set_max_rate(kDisplayRate);
  const std::unique_ptr<JobView> view =
      command_line.json ? NewJsonView(output) : NewTextView(job.id(), every_step, output);
  view->SetJob(job);
  const std::unique_ptr<RecordStream> stream = client.StreamMetrics(std::move(request));
  while (output->ok()) {
    const absl::Time now = absl::Now();
    absl::StatusOr<std::optional<v1::MetricRecord>> record = stream->Next(now + kTick);
    if (!record.ok()) {
      view->Close();
      if (absl::IsOutOfRange(record.status())) {
        return ReportNoRecords(client, job.id(), stream->last_sequence() + 1, output);
      }
      if (absl::IsCancelled(record.status())) ReportDetached(job.id(), command_line, output);
      return ReportError(client, record.status(), output);
    }
    if (record->has_value()) {
      // The view needs it before the first loss, and it is known once the first attempt has begun.
      const bool begun = (*record)->attempt() > 0;
      if (view->wants_job() && begun && (*record)->kind_case() != v1::MetricRecord::kTerminal) {
        absl::StatusOr<v1::Job> resolved = client.GetJob(job.id());
        if (resolved.ok()) view->SetJob(*resolved);
      }
      view->Record(**record);
      if ((*record)->has_terminal()) {
        view->Close();
        return ReportEnd(job.id(), (*record)->terminal(), output);
      }
    }
    view->Tick(absl::Now(), stream->outage());
  }
  return kError;
}

}  // namespace

int Submit(const Client& client, const CommandLine& command_line, Output* output) {
  v1::StartRequest request = command_line.start;
  if (request.request_id().empty()) request.set_request_id(RandomRequestId());
  if (request.has_resume_from()) {
    absl::StatusOr<v1::Job> source = client.GetJob(request.resume_from().job_id());
    if (!source.ok()) return ReportError(client, source.status(), output);
    *request.mutable_spec() = source->spec();
  }
  command_line.spec.ApplyTo(request.mutable_spec());
  if (request.spec().dataset().empty()) {
    const std::optional<int> code = ChooseDataset(client, output, request.mutable_spec()->mutable_dataset());
    if (code) return *code;
  }
  absl::StatusOr<v1::Job> job = client.Start(request);
  if (absl::IsCancelled(job.status())) {
    output->WriteError(absl::StrCat("Interrupted before the server answered. If the job was queued, lenetctl list has ",
                                    "it with request id ", Printable(request.request_id()), ".\n"));
  }
  if (!job.ok()) return ReportError(client, job.status(), output);
  if (command_line.json) {
    output->Write(JsonLine(*job));
  } else if (command_line.detach) {
    output->Write(absl::StrCat(Printable(job->id()), "\n"));
  }
  return command_line.detach ? kSuccess : Follow(client, *job, command_line, output);
}

int Watch(const Client& client, const CommandLine& command_line, Output* output) {
  absl::StatusOr<v1::Job> job = client.GetJob(command_line.job_id);
  if (!job.ok()) return ReportError(client, job.status(), output);
  return Follow(client, *job, command_line, output);
}

}  // namespace lenet::ctl
