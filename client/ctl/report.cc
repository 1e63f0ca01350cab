#include "client/ctl/report.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/text.h"

namespace lenet::ctl {
namespace {

// What may help where no connection comes about, of which gRPC tells the reason in `text`.
std::string Advice(const std::string& text, const TlsOptions& tls) {
  if (absl::StrContains(text, "is not in peer certificate")) {
    return "Its certificate is for other names: --server must be one of them.\n";
  }
  if (absl::StrContains(text, "certificate verify failed")) {
    return "Its certificate leads to none of the roots of --ca or the system, or is out of date.\n";
  }
  if (tls.enabled && absl::StrContains(text, "empty address list")) {
    return "--ca, --cert or --key cannot be used: they are damaged, or the key is not the certificate's.\n";
  }
  if (absl::StrContains(text, "wrong version number")) return "It seems to serve without TLS.\n";
  if (absl::StrContains(text, "Socket closed")) {
    return tls.enabled ? "It may ask for a certificate that it knows: --cert and --key.\n"
                       : "It may serve with TLS alone: --tls or --ca.\n";
  }
  if (absl::StrContains(text, "Permission denied")) {
    return "Its socket is for its user and a group, as a rule lenet: `id` tells whether you are in that.\n";
  }
  return absl::StrContains(text, "connect") ? "Is lenetd running there? --server or LENET_SERVER names another.\n" : "";
}

}  // namespace

int ReportError(const Client& client, const absl::Status& status, Output* output) {
  if (absl::IsCancelled(status)) return kInterrupted;
  const std::string address = Printable(client.options().address);
  const std::string text = Printable(status.message());
  const std::string code = absl::StatusCodeToString(status.code());
  if (absl::IsUnavailable(status)) {
    output->WriteError(absl::StrCat("lenetctl: server ", address, " is not available: ", text, " (", code, ")\n",
                                    Advice(text, client.options().tls)));
    return kUnreachable;
  }
  output->WriteError(absl::StrCat("lenetctl: server ", address, ": ", text, " (", code, ")\n"));
  return absl::IsInvalidArgument(status) ? kUsage : kError;
}

}  // namespace lenet::ctl
