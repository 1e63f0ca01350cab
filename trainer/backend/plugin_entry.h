// What the plug-ins have in common of the function that they export, see BackendEntry.
#ifndef LENET_TRAINER_BACKEND_PLUGIN_ENTRY_H_
#define LENET_TRAINER_BACKEND_PLUGIN_ENTRY_H_

#include <exception>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "trainer/backend/plugin.h"
#include "trainer/base/log.h"

namespace lenet {

// What make() gives, if the program's `abi` is that of the plug-in's build. `name`: for messages, "CPU".
inline absl::StatusOr<std::unique_ptr<Backend>> AnswerEntry(absl::string_view name, int abi, const LogSink& log,
                                                            absl::StatusOr<std::unique_ptr<Backend>> (*make)()) {
  try {
    if (abi != kBackendAbi) {
      return absl::UnavailableError(
          absl::StrCat("the ", name, " plug-in has interface ", int{kBackendAbi}, ", the program ", abi));
    }
    SetLogSink(log);
    return make();
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("the ", name, " plug-in does not start: ", e.what()));
  }
}

}  // namespace lenet

#endif  // LENET_TRAINER_BACKEND_PLUGIN_ENTRY_H_
