#include "trainer/backend/cuda/cuda_backend.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "trainer/backend/cuda/fused_network.h"
#include "trainer/backend/cuda/rank_group.h"
#include "trainer/backend/engine_checks.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet::cuda {
namespace {

constexpr int kLeastCapability = 75;  // of the kernels in this library
constexpr int kMaxStepsPerGraph = 64;

std::string Version(int major, int minor, int patch) { return absl::StrCat(major, ".", minor, ".", patch); }

}  // namespace

absl::StatusOr<Tuning> ParseTuning(absl::string_view text) {
  Tuning tuning;
  for (absl::string_view pair : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    int steps = 0;
    if (pair == "engine=fused" || pair == "engine=layered") {
      tuning.fused = pair == "engine=fused";
    } else if (pair == "convolution=direct" || pair == "convolution=cudnn") {
      tuning.direct_convolution = pair == "convolution=direct";
    } else if (pair == "streams=1" || pair == "streams=2") {
      tuning.two_streams = pair == "streams=2";
    } else if (pair == "sums=peers" || pair == "sums=nccl") {
      tuning.peer_sums = pair == "sums=peers";
    } else if (pair.substr(0, 6) == "steps=" && absl::SimpleAtoi(pair.substr(6), &steps) && steps >= 1 &&
               steps <= kMaxStepsPerGraph) {
      tuning.steps_per_graph = steps;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("'", pair, "' is none of engine=fused|layered, convolution=direct|cudnn, streams=1|2, ",
                       "sums=peers|nccl, steps=1..", kMaxStepsPerGraph));
    }
  }
  return tuning;
}

absl::StatusOr<std::unique_ptr<CudaBackend>> CudaBackend::Create(const Tuning& tuning) {
  std::unique_ptr<CudaBackend> backend(new CudaBackend(tuning));
  int count = 0;
  LENET_CUDA_RETURN_IF_ERROR(Place{}, cudaGetDeviceCount(&count));
  std::string skipped;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties;
    LENET_CUDA_RETURN_IF_ERROR(Place{.device = ordinal}, cudaGetDeviceProperties(&properties, ordinal));
    const int capability = 10 * properties.major + properties.minor;
    if (capability < kLeastCapability) {
      absl::StrAppend(&skipped, skipped.empty() ? "" : "; ", "device ", ordinal, " (", properties.name,
                      ") has compute capability ", properties.major, ".", properties.minor, ", below 7.5");
      continue;
    }
    // Libraries choose algorithms by the number of multiprocessors too.
    backend->devices_.push_back({.id = static_cast<int>(backend->devices_.size()),
                                 .name = properties.name,
                                 .kind = absl::StrCat("cuda sm_", capability, " x", properties.multiProcessorCount),
                                 .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)});
    backend->ordinals_.push_back(ordinal);
    backend->tf32_ = backend->tf32_ && capability >= kTf32Capability;
  }
  if (backend->devices_.empty()) {
    return absl::UnavailableError(skipped.empty() ? "there is no CUDA device" : skipped);
  }
  if (!skipped.empty()) Log(LogLevel::kWarning, skipped);
  return backend;
}

std::vector<std::pair<std::string, std::string>> CudaBackend::versions() const {
  std::vector<std::pair<std::string, std::string>> versions;
  const auto add_cuda = [&](const char* name, int version) {
    versions.emplace_back(name, absl::StrCat(version / 1000, ".", version % 1000 / 10));
  };
  int driver = 0;
  LENET_CUDA_LOG_IF_ERROR(cudaDriverGetVersion(&driver));
  add_cuda("cuda driver", driver);
  int runtime = 0;
  LENET_CUDA_LOG_IF_ERROR(cudaRuntimeGetVersion(&runtime));
  add_cuda("cuda runtime", runtime);
  const int cudnn = static_cast<int>(cudnnGetVersion());
  versions.emplace_back("cudnn", Version(cudnn / 10000, cudnn / 100 % 100, cudnn % 100));
  int blas[3] = {};
  LENET_CUDA_LOG_IF_ERROR(cublasLtGetProperty(MAJOR_VERSION, &blas[0]));
  LENET_CUDA_LOG_IF_ERROR(cublasLtGetProperty(MINOR_VERSION, &blas[1]));
  LENET_CUDA_LOG_IF_ERROR(cublasLtGetProperty(PATCH_LEVEL, &blas[2]));
  versions.emplace_back("cublas", Version(blas[0], blas[1], blas[2]));
  int nccl = 0;
  LENET_CUDA_LOG_IF_ERROR(ncclGetVersion(&nccl));
  versions.emplace_back("nccl", Version(nccl / 10000, nccl / 100 % 100, nccl % 100));
  return versions;
}

std::vector<std::pair<std::string, std::string>> CudaBackend::built_with() const {
  // The runtime itself is linked in.
  return {{"cuda driver", absl::StrCat(CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10)},
          {"cudnn", Version(CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL)},
          {"cublas", Version(CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH)},
          {"nccl", Version(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)}};
}

absl::StatusOr<DeviceStatus> CudaBackend::Inspect(int id) const {
  LENET_RETURN_IF_ERROR(CheckId(id));
  const Place place = {.device = id};
  const DeviceGuard guard;
  LENET_CUDA_RETURN_IF_ERROR(place, cudaSetDevice(ordinals_[id]));
  DeviceStatus status;
  size_t free = 0;
  size_t total = 0;
  LENET_CUDA_RETURN_IF_ERROR(place, cudaMemGetInfo(&free, &total));
  status.free_bytes = static_cast<int64_t>(free);
  for (size_t peer = 0; peer < ordinals_.size(); ++peer) {
    if (static_cast<int>(peer) == id) continue;
    int reaches = 0;
    LENET_CUDA_RETURN_IF_ERROR(place, cudaDeviceCanAccessPeer(&reaches, ordinals_[id], ordinals_[peer]));
    if (reaches != 0) status.reaches.push_back(static_cast<int>(peer));
  }
  return status;
}

absl::Status CudaBackend::CheckId(int id) const {
  if (id >= 0 && id < static_cast<int>(devices_.size())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("device ", id, " does not exist; there are ", devices_.size(), ", from 0"));
}

bool CudaBackend::supports(Precision precision) const { return precision == Precision::kFp32 || tf32_; }

absl::Status CudaBackend::CheckEngine(EngineKind engine, const Net& net, Precision precision) const {
  if (engine != EngineKind::kFused) return absl::OkStatus();
  for (size_t id = 0; id < devices_.size(); ++id) {
    LENET_ASSIGN_OR_RETURN(const std::string why_not,
                           FusedNetwork::WhyNot({.device = static_cast<int>(id)}, ordinals_[id], net, precision));
    if (!why_not.empty()) return NotFused(why_not);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RankGroup>> CudaBackend::NewGroup(std::span<const int> device_ids) {
  if (device_ids.empty()) return absl::InvalidArgumentError("a group needs at least one device");
  std::vector<int> ordinals;
  for (size_t i = 0; i < device_ids.size(); ++i) {
    const int id = device_ids[i];
    LENET_RETURN_IF_ERROR(CheckId(id));
    if (std::find(device_ids.begin(), device_ids.begin() + i, id) != device_ids.begin() + i) {
      return absl::InvalidArgumentError(absl::StrCat("device ", id, " stands twice in the group"));
    }
    ordinals.push_back(ordinals_[id]);
  }
  return CudaRankGroup::Create(device_ids, ordinals, tuning_);
}

}  // namespace lenet::cuda
