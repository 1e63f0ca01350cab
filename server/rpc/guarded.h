// No exception leaves a thread.
#ifndef LENET_SERVER_RPC_GUARDED_H_
#define LENET_SERVER_RPC_GUARDED_H_

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/base/log.h"

namespace lenet {

// Gives what `call` gives, an absl::Status or absl::StatusOr. An exception is logged and becomes RESOURCE_EXHAUSTED if
// there was no memory, else INTERNAL.
template <typename Call>
auto Guarded(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    Log(LogLevel::kError, "out of memory in a call");
    return absl::ResourceExhaustedError("the server is out of memory");
  } catch (const std::exception& error) {
    Log(LogLevel::kError, absl::StrCat("exception in a call: ", error.what()));
    return absl::InternalError(absl::StrCat("exception: ", error.what()));
  }
}

}  // namespace lenet

#endif  // LENET_SERVER_RPC_GUARDED_H_
