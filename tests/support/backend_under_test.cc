#include "tests/support/backend_under_test.h"

#include <dlfcn.h>

#include <map>
#include <memory>

#include "trainer/backend/plugin.h"

namespace lenet {

absl::StatusOr<Backend*> BackendUnderTest(const std::string& name) {
  static auto* const loaded = new std::map<std::string, absl::StatusOr<std::unique_ptr<Backend>>>();
  auto found = loaded->find(name);
  if (found == loaded->end()) found = loaded->emplace(name, LoadBackend(PluginFolder(""), name)).first;
  if (!found->second.ok()) return found->second.status();
  return found->second->get();
}

std::string WhyNoGpu() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return "no GPU: there is no driver, libcuda.so.1";
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count_devices = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  if (init == nullptr || count_devices == nullptr) return "no GPU: libcuda.so.1 is no CUDA driver";
  int count = 0;
  if (const int error = init(0); error != 0) return "no GPU: cuInit gives error " + std::to_string(error);
  if (const int error = count_devices(&count); error != 0 || count == 0) return "no GPU: the driver has no device";
  return "";
}

}  // namespace lenet
