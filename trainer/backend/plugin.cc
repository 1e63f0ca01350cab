#include "trainer/backend/plugin.h"

#include <dlfcn.h>

#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

// The handle is not kept: a backend's code stays in use until the process ends.
absl::StatusOr<void*> OpenLibrary(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  const char* reason = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one a thread
  return absl::UnavailableError(absl::StrCat("cannot load ", path, ": ", reason != nullptr ? reason : "no reason"));
}

}  // namespace

std::filesystem::path PluginFolder(absl::string_view configured) {
  if (!configured.empty()) return std::filesystem::path(std::string(configured));
  std::error_code error;
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", error);
  std::filesystem::path installed = executable.parent_path().parent_path() / "lib" / "lenet";
  if (!error && std::filesystem::is_directory(installed, error)) return installed;
  return LENET_PLUGIN_BUILD_DIR;
}

absl::StatusOr<std::unique_ptr<Backend>> LoadBackend(const std::filesystem::path& folder, absl::string_view name) {
  std::error_code error;
  // dlopen would look for a name without a folder in the system's own.
  const std::filesystem::path path = std::filesystem::absolute(folder / absl::StrCat("liblenet_", name, ".so"), error);
  if (error || !std::filesystem::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat("there is no plug-in ", path.string()));
  }
  if (name == "cuda") {
    const absl::StatusOr<void*> driver = OpenLibrary("libcuda.so.1");
    if (!driver.ok()) {
      return absl::UnavailableError(absl::StrCat("there is no NVIDIA driver (", driver.status().message(), ")"));
    }
  }
  LENET_ASSIGN_OR_RETURN(void* library, OpenLibrary(path.string()));
  const auto entry = reinterpret_cast<BackendEntry>(dlsym(library, kBackendEntryName));
  if (entry == nullptr) {
    return absl::UnavailableError(absl::StrCat(path.string(), " is no plug-in: it has no ", kBackendEntryName));
  }
  absl::StatusOr<std::unique_ptr<Backend>> backend = absl::InternalError("it gave no answer");
  entry(kBackendAbi, GetLogSink(), &backend);
  if (!backend.ok()) return Annotate(backend.status(), path.string());
  if (*backend == nullptr) return absl::InternalError(absl::StrCat(path.string(), ": it gave no backend"));
  return backend;
}

absl::StatusOr<SelectedBackend> SelectBackend(const std::filesystem::path& folder, absl::string_view choice) {
  if (choice != "auto" && choice != "cpu" && choice != "cuda") {
    return absl::InvalidArgumentError(absl::StrCat("backend is '", choice, "'; it must be auto, cpu or cuda"));
  }
  SelectedBackend selected;
  if (choice != "cpu") {
    absl::StatusOr<std::unique_ptr<Backend>> cuda = LoadBackend(folder, "cuda");
    if (!cuda.ok() && choice == "cuda") return cuda.status();
    if (cuda.ok()) {
      selected.backend = *std::move(cuda);
      return selected;
    }
    selected.reason = std::string(cuda.status().message());
  }
  absl::StatusOr<std::unique_ptr<Backend>> cpu = LoadBackend(folder, "cpu");
  if (!cpu.ok() && !selected.reason.empty()) {
    return absl::UnavailableError(absl::StrCat("no backend: ", cpu.status().message(), "; ", selected.reason));
  }
  LENET_ASSIGN_OR_RETURN(selected.backend, std::move(cpu));
  return selected;
}

}  // namespace lenet
