#include "client/ctl/report.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/text.h"

namespace lenet::ctl {

int ReportError(const Client& client, const absl::Status& status, Output* output) {
  if (absl::IsCancelled(status)) return kInterrupted;
  const std::string address = Printable(client.options().address);
  const std::string text = Printable(status.message());
  const std::string code = absl::StatusCodeToString(status.code());
  if (absl::IsUnavailable(status)) {
    // gRPC's words tell a server that does not answer from one that shuts down.
    const bool connected = !absl::StrContains(text, "connect");
    output->WriteError(
        absl::StrCat("lenetctl: server ", address, " is not available: ", text, " (", code, ")\n",
                     connected ? "" : "Is lenetd running there? --server or LENET_SERVER names another.\n"));
    return kUnreachable;
  }
  output->WriteError(absl::StrCat("lenetctl: server ", address, ": ", text, " (", code, ")\n"));
  return absl::IsInvalidArgument(status) ? kUsage : kError;
}

}  // namespace lenet::ctl
