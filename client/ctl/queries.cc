#include "client/ctl/queries.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/json.h"
#include "client/ctl/report.h"
#include "client/ctl/table.h"
#include "client/ctl/text.h"

namespace lenet::ctl {
namespace {

constexpr Table::Align kRight = Table::Align::kRight;

std::string Count(int64_t value, const char* unit = "") {
  return value == 0 ? "" : absl::StrCat(FormatCount(value), unit);
}

std::string Time(const google::protobuf::Timestamp& time) {
  return time.seconds() == 0 && time.nanos() == 0 ? "" : FormatTime(time);
}

// "one-cycle" for ONE_CYCLE, as the flags have it.
std::string KindName(const std::string& name) { return absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", "-"}}); }

// "sgd, momentum 0.9, nesterov".
std::string Describe(const v1::Optimizer& optimizer) {
  std::string text = KindName(v1::Optimizer::Kind_Name(optimizer.kind()));
  if (optimizer.has_momentum()) absl::StrAppend(&text, ", momentum ", FormatExact(optimizer.momentum()));
  if (optimizer.nesterov()) absl::StrAppend(&text, ", nesterov");
  if (optimizer.has_beta1()) absl::StrAppend(&text, ", beta1 ", FormatExact(optimizer.beta1()));
  if (optimizer.has_beta2()) absl::StrAppend(&text, ", beta2 ", FormatExact(optimizer.beta2()));
  if (optimizer.has_epsilon()) absl::StrAppend(&text, ", epsilon ", FormatExact(optimizer.epsilon()));
  const double decay = optimizer.weight_decay();
  if (decay > 0) absl::StrAppend(&text, ", weight decay ", FormatExact(decay));
  return text;
}

// "linear, warm-up 0.2".
std::string Describe(const v1::Schedule& schedule) {
  std::string text = KindName(v1::Schedule::Kind_Name(schedule.kind()));
  const double warmup = schedule.warmup_fraction();
  if (warmup > 0) absl::StrAppend(&text, ", warm-up ", FormatExact(warmup));
  const double final_fraction = schedule.final_fraction();
  if (final_fraction > 0) absl::StrAppend(&text, ", final fraction ", FormatExact(final_fraction));
  if (schedule.has_gamma()) absl::StrAppend(&text, ", gamma ", FormatExact(schedule.gamma()));
  if (schedule.has_step_epochs()) absl::StrAppend(&text, ", step epochs ", schedule.step_epochs());
  if (schedule.has_peak_fraction()) absl::StrAppend(&text, ", peak fraction ", FormatExact(schedule.peak_fraction()));
  if (schedule.has_initial_divisor()) {
    absl::StrAppend(&text, ", initial divisor ", FormatExact(schedule.initial_divisor()));
  }
  if (schedule.has_final_divisor()) absl::StrAppend(&text, ", final divisor ", FormatExact(schedule.final_divisor()));
  return text;
}

// "every epoch", "every 1,000 steps".
std::string Every(int64_t count, const char* unit) {
  return count == 1 ? absl::StrCat("every ", unit) : absl::StrCat("every ", FormatCount(count), " ", unit, "s");
}

// "every epoch, every 60 s, the newest 5 kept, the best kept".
std::string Describe(const v1::CheckpointPolicy& policy) {
  std::vector<std::string> parts;
  if (policy.every_epochs() != 0) parts.push_back(Every(policy.every_epochs(), "epoch"));
  if (policy.every_steps() != 0) parts.push_back(Every(policy.every_steps(), "step"));
  if (policy.every_seconds() != 0) parts.push_back(absl::StrCat("every ", FormatExact(policy.every_seconds()), " s"));
  if (parts.empty()) parts.push_back("at the end");
  parts.push_back(absl::StrCat("the newest ", policy.keep_last(), " kept"));
  parts.push_back(policy.keep_best() ? "the best kept" : "the best not kept");
  return absl::StrJoin(parts, ", ");
}

// "uniform, -0.1 to 0.1".
std::string Describe(const v1::Init& init) {
  std::string text = KindName(v1::Init::Kind_Name(init.kind()));
  if (init.kind() == v1::Init::UNIFORM) {
    absl::StrAppend(&text, ", ", FormatExact(init.low()), " to ", FormatExact(init.high()));
  }
  return text;
}

// What is known of `parts`, with commas between.
std::string Known(std::vector<std::string> parts) {
  parts.erase(std::remove(parts.begin(), parts.end(), ""), parts.end());
  return absl::StrJoin(parts, ", ");
}

// {"a": "1", "b": "2"} as "a 1, b 2".
std::string Versions(const google::protobuf::Map<std::string, std::string>& versions) {
  const std::map<std::string, std::string> sorted(versions.begin(), versions.end());
  return absl::StrJoin(sorted, ", ", absl::PairFormatter(" "));
}

// Done of all, the latter once it is known.
std::string OfAll(int64_t done, int64_t all) {
  return all > 0 ? absl::StrCat(FormatCount(done), "/", FormatCount(all)) : Count(done);
}

int64_t Epochs(const v1::ResolvedSpec& resolved) {
  return resolved.steps_per_epoch() > 0
             ? (resolved.total_steps() + resolved.steps_per_epoch() - 1) / resolved.steps_per_epoch()
             : 0;
}

void AddResolved(const v1::Job& job, FieldList* fields) {
  const v1::ResolvedSpec& resolved = job.resolved();
  fields->Add("net", Known({resolved.net(), Count(resolved.parameters(), " parameters"),
                            Count(resolved.classes(), " classes")}));
  fields->Add("images", absl::StrCat(FormatCount(resolved.train_images()), " to train, ",
                                     FormatCount(resolved.test_images()), " to test"));
  fields->Add("backend", Known({resolved.backend(), resolved.device_kind(), resolved.engine()}));
  const std::string devices = absl::StrJoin(resolved.device_ids(), ",");
  fields->Add("ranks", absl::StrCat(resolved.ranks(), devices.empty() ? "" : ", on devices ", devices));
  fields->Add("batch", absl::StrCat(resolved.batch_size(), " a rank, ", resolved.global_batch_size(), " together"));
  fields->Add("steps", absl::StrCat(FormatCount(resolved.total_steps()), ", ", FormatCount(resolved.steps_per_epoch()),
                                    " an epoch"));
  fields->Add("dropped images", Count(resolved.dropped_images_per_epoch()));
  fields->Add("optimizer", Describe(resolved.optimizer()));
  fields->Add("learning rate", FormatShort(resolved.learning_rate()));
  fields->Add("schedule", Describe(resolved.schedule()));
  fields->Add("clip norm", resolved.clip_norm() > 0 ? FormatExact(resolved.clip_norm()) : "none");
  fields->Add("seed", absl::StrCat(resolved.seed()));
  // The first servers do not tell the four.
  if (resolved.has_init()) {
    fields->Add("init", Describe(resolved.init()));
    fields->Add("nan policy", resolved.nan_policy() == v1::NAN_POLICY_CONTINUE ? "continue" : "stop");
    fields->Add("evaluates", resolved.evaluate_every_epochs() == 0 ? "at the end"
                                                                   : Every(resolved.evaluate_every_epochs(), "epoch"));
    fields->Add("saves", Describe(resolved.checkpoints()));
  }
  fields->Add("precision", resolved.precision() == v1::PRECISION_TF32 ? "tf32" : "fp32");
  fields->Add("versions", Versions(resolved.library_versions()));
}

// When the job gives way and ends early, where the spec says so.
void AddPolicy(const v1::TrainingSpec& spec, FieldList* fields) {
  fields->Add("priority", spec.priority() != 0 ? absl::StrCat(spec.priority()) : "");
  fields->Add("preemptible", spec.preemptible() ? "yes" : "");
  fields->Add("max duration", spec.max_duration() > 0 ? absl::StrCat(FormatExact(spec.max_duration()), " s") : "");
  fields->Add("target", spec.has_target_accuracy() ? FormatPercent(spec.target_accuracy()) : "");
  fields->Add("patience", Count(spec.patience(), spec.patience() == 1 ? " evaluation" : " evaluations"));
}

// "468, 1404 (98.10 %)": the steps as --resume-from takes them, with the accuracies that are known.
std::string Steps(const google::protobuf::RepeatedPtrField<v1::Checkpoint>& checkpoints) {
  return absl::StrJoin(checkpoints, ", ", [](std::string* out, const v1::Checkpoint& checkpoint) {
    absl::StrAppend(out, checkpoint.step());
    if (checkpoint.has_accuracy()) absl::StrAppend(out, " (", FormatPercent(checkpoint.accuracy()), ")");
  });
}

std::string Describe(const v1::ResumeFrom& from) {
  if (from.job_id().empty()) return "uploaded weights";
  return absl::StrCat("job ", from.job_id(), from.has_step() ? absl::StrCat(", step ", FormatCount(from.step())) : "");
}

std::string DescribeJob(const v1::Job& job) {
  FieldList fields;
  fields.Add("id", job.id());
  fields.Add("name", job.name());
  fields.Add("request id", job.request_id());
  // The failure says the same.
  const bool reason = !job.reason().empty() && !job.has_failure();
  fields.Add("state", absl::StrCat(StateName(job.state()), reason ? absl::StrCat(": ", job.reason()) : ""));
  fields.Add("failure", job.has_failure() ? FormatFailure(job.failure()) : "");
  fields.Add("queue position", Count(job.queue_position()));
  fields.Add("client", job.client());
  fields.Add("created", Time(job.created_at()));
  fields.Add("started", Time(job.started_at()));
  fields.Add("ended", Time(job.ended_at()));
  fields.Add("attempt", job.attempt() > 1 ? absl::StrCat(job.attempt()) : "");
  fields.Add("resumed from", job.has_resumed_from() ? Describe(job.resumed_from()) : "");
  AddPolicy(job.spec(), &fields);
  fields.Add("dataset", job.spec().dataset());
  if (job.has_resolved()) AddResolved(job, &fields);
  const v1::Progress& progress = job.progress();
  fields.Add("step", progress.step() > 0 ? OfAll(progress.step(), job.resolved().total_steps()) : "");
  fields.Add("epoch", progress.step() > 0 ? OfAll(progress.epoch(), Epochs(job.resolved())) : "");
  fields.Add("loss", progress.step() > 0 ? FormatLoss(progress.loss()) : "");
  fields.Add("images/s", Count(std::llround(progress.images_per_second())));
  fields.Add("accuracy", progress.evaluated() ? FormatPercent(progress.accuracy()) : "");
  fields.Add("checkpoints", job.checkpoints().empty() ? "" : absl::StrCat("steps ", Steps(job.checkpoints())));
  fields.Add("checkpoint", job.checkpoint());
  // Equal on all ranks, unless something is badly wrong.
  const std::set<uint64_t> checksums(job.weights_checksums().begin(), job.weights_checksums().end());
  fields.Add("weights", absl::StrJoin(checksums, " ", [](std::string* out, uint64_t checksum) {
               absl::StrAppendFormat(out, "%016x", checksum);
             }));
  fields.Add("records", Count(static_cast<int64_t>(job.last_sequence())));
  return fields.Render();
}

}  // namespace

int List(const Client& client, const CommandLine& command_line, Output* output) {
  bool more = false;
  absl::StatusOr<std::vector<v1::Job>> jobs = client.ListJobs(command_line.states, command_line.limit, &more);
  if (!jobs.ok()) return ReportError(client, jobs.status(), output);
  if (command_line.json) {
    for (const v1::Job& job : *jobs) output->Write(JsonLine(job));
    return kSuccess;
  }
  Table table({{"ID"},
               {"NAME"},
               {"STATE"},
               {"DATASET"},
               {"NET"},
               {"RANKS", kRight},
               {"EPOCH", kRight},
               {"STEP", kRight},
               {"LOSS", kRight},
               {"ACCURACY", kRight},
               {"CREATED"},
               {"REASON"}});
  for (const v1::Job& job : *jobs) {
    const v1::Progress& progress = job.progress();
    const bool stepped = progress.step() > 0;
    const std::string net = job.has_resolved() ? job.resolved().net() : job.spec().net();
    const bool waits = job.state() == v1::QUEUED || job.state() == v1::PAUSED;
    std::string state = StateName(job.state());
    if (job.queue_position() > 0) absl::StrAppend(&state, " (", job.queue_position(), ")");
    table.AddRow({job.id(), job.name(), state, job.spec().dataset(), net.empty() ? "lenet" : net,
                  Count(job.has_resolved() ? job.resolved().ranks() : job.spec().ranks()),
                  stepped ? OfAll(progress.epoch(), Epochs(job.resolved())) : "",
                  stepped ? OfAll(progress.step(), job.resolved().total_steps()) : "",
                  stepped ? FormatLoss(progress.loss()) : "",
                  progress.evaluated() ? FormatPercent(progress.accuracy()) : "", Time(job.created_at()),
                  waits ? job.reason() : ""});
  }
  output->Write(table.Render(output->width()));
  if (more) output->WriteError("There are more jobs; --limit 0 lists all.\n");
  return kSuccess;
}

int Show(const Client& client, const CommandLine& command_line, Output* output) {
  absl::StatusOr<v1::Job> job = client.GetJob(command_line.job_id);
  if (!job.ok()) return ReportError(client, job.status(), output);
  output->Write(command_line.json ? JsonLine(*job) : DescribeJob(*job));
  return kSuccess;
}

int Checkpoints(const Client& client, const CommandLine& command_line, Output* output) {
  absl::StatusOr<std::vector<v1::Checkpoint>> checkpoints = client.ListCheckpoints(command_line.job_id);
  if (!checkpoints.ok()) return ReportError(client, checkpoints.status(), output);
  if (command_line.json) {
    for (const v1::Checkpoint& checkpoint : *checkpoints) output->Write(JsonLine(checkpoint));
    return kSuccess;
  }
  const absl::Time now = absl::Now();
  Table table({{"STEP", kRight}, {"EPOCH", kRight}, {"ACCURACY", kRight}, {"SIZE", kRight}, {"AGE", kRight}, {"PATH"}});
  for (const v1::Checkpoint& checkpoint : *checkpoints) {
    // As --resume-from takes it.
    table.AddRow({absl::StrCat(checkpoint.step()), FormatCount(checkpoint.epoch()),
                  checkpoint.has_accuracy() ? FormatPercent(checkpoint.accuracy()) : "",
                  FormatBytes(checkpoint.bytes()),
                  checkpoint.has_saved_at() ? FormatAge(now - ToTime(checkpoint.saved_at())) : "", checkpoint.path()});
  }
  output->Write(table.Render(output->width()));
  if (checkpoints->empty()) {
    output->WriteError(Printable(absl::StrCat("lenetctl: job ", command_line.job_id, " has no checkpoint")) + "\n");
  }
  return kSuccess;
}

int Info(const Client& client, const CommandLine& command_line, Output* output) {
  absl::StatusOr<v1::GetServerInfoResponse> info = client.GetServerInfo();
  if (!info.ok()) return ReportError(client, info.status(), output);
  if (command_line.json) {
    output->Write(JsonLine(*info));
    return kSuccess;
  }
  FieldList fields;
  fields.Add("server", client.options().address);
  fields.Add("version", absl::StrCat(info->version(), info->draining() ? ", draining" : ""));
  fields.Add("started", Time(info->started_at()));
  fields.Add("backend",
             absl::StrCat(info->backend(), info->backend_reason().empty() ? "" : ": ", info->backend_reason()));
  fields.Add("libraries", Versions(info->library_versions()));
  fields.Add("nets", absl::StrJoin(info->nets(), ", "));
  fields.Add("jobs", absl::StrCat(info->running_jobs(), " running, ", info->queued_jobs(), " queued"));
  Table devices({{"DEVICE", kRight}, {"NAME"}, {"KIND"}, {"MEMORY", kRight}, {"JOB"}, {"HEALTH"}});
  for (const v1::Device& device : info->devices()) {
    devices.AddRow({absl::StrCat(device.id()), device.name(), device.kind(),
                    device.memory_bytes() > 0 ? FormatBytes(device.memory_bytes()) : "", device.job_id(),
                    device.unhealthy().empty() ? "ok" : absl::StrCat("unhealthy: ", device.unhealthy())});
  }
  output->Write(absl::StrCat(fields.Render(), "\n", devices.Render(output->width())));
  return kSuccess;
}

int Datasets(const Client& client, const CommandLine& command_line, Output* output) {
  absl::StatusOr<std::vector<v1::DatasetInfo>> datasets = client.ListDatasets();
  if (!datasets.ok()) return ReportError(client, datasets.status(), output);
  if (command_line.json) {
    for (const v1::DatasetInfo& dataset : *datasets) output->Write(JsonLine(dataset));
    return kSuccess;
  }
  Table table({{"NAME"}, {"IMAGES"}, {"TRAIN", kRight}, {"TEST", kRight}, {"PATH"}});
  for (const v1::DatasetInfo& dataset : *datasets) {
    table.AddRow({dataset.name(),
                  dataset.valid() ? absl::StrCat(dataset.channels(), "x", dataset.height(), "x", dataset.width()) : "",
                  Count(dataset.train_images()), Count(dataset.test_images()),
                  dataset.valid() ? dataset.path() : absl::StrCat("not usable: ", dataset.error())});
  }
  output->Write(table.Render(output->width()));
  if (datasets->empty()) {
    output->WriteError(
        "lenetctl: the server has no data set; they are folders below its data folders (lenetd --help)\n");
  }
  return kSuccess;
}

}  // namespace lenet::ctl
