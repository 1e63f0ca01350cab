#include "tests/gpu/cuda_driver.h"

#include <dlfcn.h>

#include <cstddef>
#include <functional>

#include "absl/strings/str_cat.h"

namespace lenet {
namespace {

// A driver function by its name, called with these arguments; -1 if the driver lacks it.
template <typename... Arguments>
int Call(const char* name, Arguments... arguments) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return -1;
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  return function == nullptr ? -1 : function(arguments...);
}

// With the context that the CUDA runtime uses current.
absl::Status InPrimaryContext(int device, const std::function<int()>& body) {
  void* context = nullptr;
  int result = Call("cuInit", 0u);
  if (result == 0) result = Call("cuDevicePrimaryCtxRetain", &context, device);
  if (result == 0) {
    result = Call("cuCtxPushCurrent_v2", context);
    if (result == 0) result = body();
    Call("cuCtxPopCurrent_v2", &context);
    Call("cuDevicePrimaryCtxRelease_v2", device);
  }
  if (result == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("device ", device, ": driver error ", result));
}

}  // namespace

absl::StatusOr<int64_t> FreeDeviceMemory(int device) {
  size_t free = 0;
  size_t total = 0;
  const absl::Status status = InPrimaryContext(device, [&] { return Call("cuMemGetInfo_v2", &free, &total); });
  if (!status.ok()) return status;
  return static_cast<int64_t>(free);
}

absl::Status SpoilContext(int device) {
  static constexpr char kPtx[] = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry Trap() { trap; }\n";
  return InPrimaryContext(device, [] {
    void* module = nullptr;
    void* kernel = nullptr;
    void* const null = nullptr;
    int result = Call("cuModuleLoadData", &module, static_cast<const void*>(kPtx));
    if (result == 0) result = Call("cuModuleGetFunction", &kernel, module, "Trap");
    if (result == 0) result = Call("cuLaunchKernel", kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, null, null, null);
    return result;
  });
}

}  // namespace lenet
