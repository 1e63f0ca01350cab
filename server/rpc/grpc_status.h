// absl::Status to grpc::Status: the one place.
#ifndef LENET_SERVER_RPC_GRPC_STATUS_H_
#define LENET_SERVER_RPC_GRPC_STATUS_H_

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace lenet {

// The same code; the message as valid UTF-8, cut to what fits into HTTP/2 headers.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace lenet

#endif  // LENET_SERVER_RPC_GRPC_STATUS_H_
