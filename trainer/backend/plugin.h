// Backends as plug-in libraries: liblenet_cpu.so and liblenet_cuda.so, loaded at start if they are there.
#ifndef LENET_TRAINER_BACKEND_PLUGIN_H_
#define LENET_TRAINER_BACKEND_PLUGIN_H_

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/backend/backend.h"

namespace lenet {

// What a plug-in exports, as `extern "C"` under kBackendEntryName. `abi` must equal kBackendAbi of the plug-in's build;
// then the answer is the backend or a status that says why there is none (no device, no driver), given through
// `result`.
inline constexpr int kBackendAbi = 4;
inline constexpr char kBackendEntryName[] = "lenet_new_backend";
using BackendEntry = void (*)(int abi, const LogSink& log, absl::StatusOr<std::unique_ptr<Backend>>* result);

// The folder of the plug-ins: `configured` if not empty, else ../lib/lenet beside the executable's folder if that is
// there, else the build tree's.
std::filesystem::path PluginFolder(absl::string_view configured);

// Loads liblenet_<name>.so from `folder`; for "cuda", only after libcuda.so.1 has loaded. NOT_FOUND if the library is
// not there; UNAVAILABLE with the reason if it or what it needs does not load, it was built for another kBackendAbi, or
// it finds no usable device. Plug-ins stay loaded until the process ends.
absl::StatusOr<std::unique_ptr<Backend>> LoadBackend(const std::filesystem::path& folder, absl::string_view name);

struct SelectedBackend {
  std::unique_ptr<Backend> backend;
  std::string reason;  // why there is no GPU, where "auto" came to the CPU; else empty
};

// "cpu" and "cuda" load just that one; "auto" takes cuda if it loads, else cpu. INVALID_ARGUMENT for another choice.
absl::StatusOr<SelectedBackend> SelectBackend(const std::filesystem::path& folder, absl::string_view choice);

}  // namespace lenet

#endif  // LENET_TRAINER_BACKEND_PLUGIN_H_
