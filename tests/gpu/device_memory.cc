#include "tests/gpu/device_memory.h"

#include <dlfcn.h>

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace lenet {
namespace {

template <typename Function>
Function* Find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

absl::StatusOr<int64_t> FreeDeviceMemory(int device) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return absl::UnavailableError("libcuda.so.1 does not load");
  const auto init = Find<int(unsigned)>(library, "cuInit");
  const auto retain = Find<int(void**, int)>(library, "cuDevicePrimaryCtxRetain");
  const auto release = Find<int(int)>(library, "cuDevicePrimaryCtxRelease_v2");
  const auto push = Find<int(void*)>(library, "cuCtxPushCurrent_v2");
  const auto pop = Find<int(void**)>(library, "cuCtxPopCurrent_v2");
  const auto info = Find<int(size_t*, size_t*)>(library, "cuMemGetInfo_v2");
  if (!init || !retain || !release || !push || !pop || !info) {
    return absl::UnavailableError("libcuda.so.1 lacks a function");
  }
  void* context = nullptr;
  int result = init(0);
  if (result == 0) result = retain(&context, device);
  if (result != 0) return absl::InternalError(absl::StrCat("device ", device, ": driver error ", result));
  size_t free = 0;
  size_t total = 0;
  result = push(context);
  if (result == 0) result = info(&free, &total);
  pop(&context);
  release(device);
  if (result != 0) return absl::InternalError(absl::StrCat("device ", device, ": driver error ", result));
  return static_cast<int64_t>(free);
}

}  // namespace lenet
