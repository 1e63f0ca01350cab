// Requests, checked and put into the server's own terms.
#ifndef LENET_SERVER_RPC_REQUESTS_H_
#define LENET_SERVER_RPC_REQUESTS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lenet/v1/training_service.pb.h"
#include "server/metrics/record_filter.h"
#include "server/store/job_store.h"

namespace lenet {

// Errors are INVALID_ARGUMENT and name the field, the value and the bound.
absl::Status CheckJobId(absl::string_view id);
absl::StatusOr<JobQuery> ToQuery(const v1::ListJobsRequest& request);
absl::StatusOr<RecordWishes> ToWishes(const v1::StreamMetricsRequest& request);

// Job.client of a peer as gRPC names it: "127.0.0.1" of "ipv4:127.0.0.1:40112", "unix" of "unix:" and what follows.
std::string ClientOf(absl::string_view peer);

// Who counts as one client where addresses are counted: of an IPv6 address all that share its first half, which whoever
// has one has at least, as "2001:db8::/64"; all else as it is.
std::string NetworkOf(absl::string_view client);

}  // namespace lenet

#endif  // LENET_SERVER_RPC_REQUESTS_H_
