// What the plug-in library exports; see trainer/backend/plugin.h.
#include "trainer/backend/plugin_entry.h"

#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "trainer/backend/cuda/cuda_backend.h"
#include "trainer/comm/nccl.h"

namespace lenet::cuda {
namespace {

absl::StatusOr<std::unique_ptr<Backend>> NewBackend() {
  const char* text = std::getenv("LENET_CUDA_TUNING");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  absl::StatusOr<Tuning> tuning = ParseTuning(text == nullptr ? "" : text);
  if (!tuning.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("LENET_CUDA_TUNING: ", tuning.status().message()));
  }
  SetNcclDefaults();
  return CudaBackend::Create(*tuning);
}

}  // namespace
}  // namespace lenet::cuda

extern "C" __attribute__((visibility("default"))) void lenet_new_backend(
    int abi, const lenet::LogSink& log, absl::StatusOr<std::unique_ptr<lenet::Backend>>* result) {
  *result = lenet::AnswerEntry("CUDA", abi, log, lenet::cuda::NewBackend);
}
