// Counts every call, with its status and its time.
#ifndef LENET_SERVER_RPC_CALL_METER_H_
#define LENET_SERVER_RPC_CALL_METER_H_

#include <memory>
#include <vector>

#include "grpcpp/support/server_interceptor.h"
#include "server/rpc/call_counts.h"
#include "server/rpc/connection_table.h"
#include "server/telemetry/rpc_counters.h"

namespace lenet {

// The methods of the training service, of health and of reflection.
std::vector<RpcMethodName> ServedMethods();

// For grpc::ServerBuilder; all outlive the server. `calls` gets those that are no streams, `connections` those that the
// client takes back within a second.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NewCallMeter(
    RpcCounters* counters, CallCounts* calls, ConnectionTable* connections);

}  // namespace lenet

#endif  // LENET_SERVER_RPC_CALL_METER_H_
