// How lenetctl tells of errors.
#ifndef LENET_CLIENT_CTL_REPORT_H_
#define LENET_CLIENT_CTL_REPORT_H_

#include "absl/status/status.h"
#include "client/client.h"
#include "client/ctl/output.h"

namespace lenet::ctl {

// An error of a call: writes one line that names the server and what it, or the way to it, said. Gives the exit code. A
// call that was cancelled writes nothing: the user knows.
int ReportError(const Client& client, const absl::Status& status, Output* output);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_REPORT_H_
