#include "client/ctl/start_flags.h"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

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
  // A folder opens, and cannot be read.
  const auto failed = [&path](int error) {
    return absl::StrCat("cannot read \"", path, "\": ", std::generic_category().message(error));
  };
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return failed(errno);
  // One byte more than may be there tells a file that is too large.
  bytes->resize(kMaxWeightsBytes + 1);
  bytes->resize(std::fread(bytes->data(), 1, bytes->size(), file.get()));
  if (std::ferror(file.get()) != 0) return failed(errno);
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
