// The flags of `lenetctl submit` that say what a job begins from.
#ifndef LENET_CLIENT_CTL_START_FLAGS_H_
#define LENET_CLIENT_CTL_START_FLAGS_H_

#include <cstdint>
#include <string>

#include "lenet/v1/training_service.pb.h"

namespace CLI {
class App;
}

namespace lenet::ctl {

// As the server has it.
inline constexpr int64_t kMaxWeightsBytes = int64_t{4} << 20;

// --resume-from and --weights, of which one may be given. They set `start->start_from`; `start` outlives `command`.
void AddStartFlags(CLI::App* command, v1::StartRequest* start);

// "JOB" or "JOB@STEP". Gives an error text, or nothing.
std::string ParseResumeFrom(const std::string& text, v1::ResumeFrom* from);

// Reads a whole file of at most kMaxWeightsBytes. Gives an error text that names it, or nothing.
std::string ReadWeights(const std::string& path, std::string* bytes);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_START_FLAGS_H_
