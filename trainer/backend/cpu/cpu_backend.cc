#include <gnu/libc-version.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "trainer/backend/backend.h"
#include "trainer/backend/cpu/cpu_engine.h"
#include "trainer/backend/cpu/kernels.h"
#include "trainer/backend/engine_checks.h"
#include "trainer/backend/plugin_entry.h"
#include "trainer/base/cores.h"
#include "trainer/base/status.h"
#include "trainer/comm/local.h"

namespace lenet::cpu {
namespace {

class CpuGroup final : public RankGroup {
 public:
  CpuGroup(const Kernels& kernels, std::span<const int> device_ids)
      : kernels_(kernels), device_ids_(device_ids.begin(), device_ids.end()), group_(size()) {}

  std::span<const int> device_ids() const override { return device_ids_; }

  absl::StatusOr<std::unique_ptr<Engine>> NewEngine(int rank, const EngineOptions& options) override {
    if (rank < 0 || rank >= size()) {
      return BadValue("rank", rank, absl::StrCat("0 to ", size() - 1));
    }
    try {
      return CpuEngine::Create(&group_, rank, kernels_, options);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for the engine of CPU rank ", rank));
    }
  }

  void Abort(absl::string_view reason) override { group_.Abort(reason); }
  bool aborted() const override { return group_.aborted(); }

 private:
  const Kernels& kernels_;
  const std::vector<int> device_ids_;
  LocalGroup group_;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Kernels& kernels, std::vector<DeviceInfo> devices)
      : kernels_(kernels), devices_(std::move(devices)) {}

  absl::string_view name() const override { return "cpu"; }
  std::span<const DeviceInfo> devices() const override { return devices_; }
  // exp and log of the C library enter the losses.
  std::vector<std::pair<std::string, std::string>> versions() const override {
    return {{"glibc", gnu_get_libc_version()}};
  }
  std::vector<std::pair<std::string, std::string>> built_with() const override {
    return {{"glibc", absl::StrCat(__GLIBC__, ".", __GLIBC_MINOR__)}};
  }
  absl::StatusOr<DeviceStatus> Inspect(int id) const override {
    LENET_RETURN_IF_ERROR(CheckId(id));
    return DeviceStatus();
  }
  bool supports(Precision precision) const override { return precision == Precision::kFp32; }
  absl::Status CheckEngine(EngineKind engine, const Net& /*net*/, Precision /*precision*/) const override {
    return NoFusedEngine(engine, name());
  }
  bool oversubscribable() const override { return true; }
  bool failures_last() const override { return false; }

  absl::StatusOr<std::unique_ptr<RankGroup>> NewGroup(std::span<const int> device_ids) override {
    if (device_ids.empty()) return absl::InvalidArgumentError("a group needs at least one device");
    for (const int id : device_ids) LENET_RETURN_IF_ERROR(CheckId(id));
    try {
      return std::make_unique<CpuGroup>(kernels_, device_ids);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for a group of ", device_ids.size(), " ranks"));
    }
  }

 private:
  absl::Status CheckId(int id) const {
    if (id >= 0 && id < static_cast<int>(devices_.size())) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("no CPU device ", id, "; there are 0 to ", devices_.size() - 1));
  }

  const Kernels& kernels_;
  const std::vector<DeviceInfo> devices_;
};

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

// The best instruction set that the processor has, or the one that LENET_CPU_ISA names: with it a machine can give the
// bits of an older one.
absl::StatusOr<const Kernels*> ChooseKernels() {
  const std::span<const Kernels* const> supported = SupportedKernels();
  const char* wanted = std::getenv("LENET_CPU_ISA");  // NOLINT(concurrency-mt-unsafe)
  if (wanted == nullptr || *wanted == '\0') return supported.front();
  std::vector<std::string> names;
  for (const Kernels* kernels : supported) {
    if (kernels->instruction_set == std::string(wanted)) return kernels;
    names.push_back(kernels->instruction_set);
  }
  return absl::UnavailableError(
      absl::StrCat("LENET_CPU_ISA is '", wanted, "'; this processor has ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<std::unique_ptr<Backend>> NewBackend() {
  LENET_ASSIGN_OR_RETURN(const Kernels* kernels, ChooseKernels());
  DeviceInfo device = {.name = ProcessorName(), .kind = absl::StrCat("cpu ", kernels->instruction_set)};
  std::vector<DeviceInfo> devices;
  for (device.id = 0; device.id < UsableCores(); ++device.id) devices.push_back(device);
  return std::make_unique<CpuBackend>(*kernels, std::move(devices));
}

}  // namespace
}  // namespace lenet::cpu

extern "C" __attribute__((visibility("default"))) void lenet_new_backend(
    int abi, const lenet::LogSink& log, absl::StatusOr<std::unique_ptr<lenet::Backend>>* result) {
  *result = lenet::AnswerEntry("CPU", abi, log, lenet::cpu::NewBackend);
}
