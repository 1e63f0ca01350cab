#include "client/ctl/start_flags.h"

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/ctl/value_flags.h"

namespace lenet::ctl {

std::string ParseResumeFrom(const std::string& text, v1::ResumeFrom* from) {
  const size_t at = text.rfind('@');
  from->set_job_id(text.substr(0, at));
  if (from->job_id().empty()) return absl::StrCat("\"", text, "\" is not JOB or JOB@STEP: it names no job");
  if (at == std::string::npos) return "";
  int64_t step;
  std::string error = ParseNumber(text.substr(at + 1), &step, int64_t{0});
  if (error.empty()) from->set_step(step);
  return error;
}

std::string ReadWeights(const std::string& path, std::string* bytes) {
  const std::string error = ReadFile(path, kMaxWeightsBytes, bytes);
  if (!error.empty()) return absl::StrCat("cannot read \"", path, "\": ", error);
  if (bytes->empty()) return absl::StrCat("\"", path, "\" is empty");
  if (static_cast<int64_t>(bytes->size()) <= kMaxWeightsBytes) return "";
  return absl::StrCat("\"", path, "\" is larger than ", kMaxWeightsBytes, " bytes");
}

void AddStartFlags(CLI::App* command, v1::StartRequest* start) {
  const std::string group = "What to begin from (with none of these: initial weights)";
  CLI::Option* resume_from =
      AddValue(command, "--resume-from", "JOB[@STEP]",
               "The state of a job in its newest checkpoint, or in that of STEP. What no flag says is as in that job; "
               "--epochs and --max-steps count from its beginning",
               [start](const std::string& text) { return ParseResumeFrom(text, start->mutable_resume_from()); });
  resume_from->group(group);
  AddValue(command, "--weights", "FILE", "Weights alone: a safetensors file of at most 4 MiB, names as PyTorch's",
           [start](const std::string& path) { return ReadWeights(path, start->mutable_initial_weights()); })
      ->excludes(resume_from)
      ->group(group);
}

}  // namespace lenet::ctl
