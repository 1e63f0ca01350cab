#include "server/rpc/call_meter.h"

#include <chrono>
#include <cstddef>
#include <string>

#include "google/protobuf/descriptor.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"
#include "lenet/v1/training_service.pb.h"
#include "server/rpc/unix_peers.h"

namespace lenet {
namespace {

using grpc::experimental::InterceptionHookPoints;

// gRPC makes one for each call, and destroys it when it is done with the call.
class CallMeter : public grpc::experimental::Interceptor {
 public:
  CallMeter(RpcMethodCounters* counters, CallCounts* calls, ConnectionTable* connections,
            const grpc::ServerContextBase* context)
      : counters_(counters),
        calls_(calls),
        connections_(connections),
        context_(context),
        client_(CountedClient(*context)),
        begin_(Clock::now()) {
    if (!counters_->name.streams) calls_->Begin(client_);
    counters_->started.Add();
    counters_->in_flight.fetch_add(1, std::memory_order_relaxed);
  }
  ~CallMeter() override {
    // The client, or its connection, was gone before there was a status.
    if (!handled_) Handled(grpc::StatusCode::CANCELLED);
    counters_->in_flight.fetch_sub(1, std::memory_order_relaxed);
    if (!counters_->name.streams) calls_->End(client_);
  }
  CallMeter(const CallMeter&) = delete;
  CallMeter& operator=(const CallMeter&) = delete;

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      Handled(methods->GetSendStatus().error_code());
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_CLOSE) && context_->IsCancelled() &&
        Clock::now() - begin_ < kQuick) {
      connections_->CountReset(client_);
    }
    methods->Proceed();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kQuick{1};

  void Handled(grpc::StatusCode code) {
    handled_ = true;
    const bool known = code >= 0 && static_cast<size_t>(code) < RpcMethodCounters::kCodes;
    counters_->handled[static_cast<size_t>(known ? code : grpc::StatusCode::UNKNOWN)].Add();
    if (counters_->name.streams) return;
    counters_->handling.Observe(std::chrono::duration<double>(Clock::now() - begin_).count());
  }

  RpcMethodCounters* const counters_;
  CallCounts* const calls_;
  ConnectionTable* const connections_;
  const grpc::ServerContextBase* const context_;
  const std::string client_;
  const Clock::time_point begin_;
  bool handled_ = false;
};

class CallMeterFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  CallMeterFactory(RpcCounters* counters, CallCounts* calls, ConnectionTable* connections)
      : counters_(counters), calls_(calls), connections_(connections) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    return new CallMeter(counters_->Find(info->method()), calls_, connections_, info->server_context());
  }

 private:
  RpcCounters* const counters_;
  CallCounts* const calls_;
  ConnectionTable* const connections_;
};

}  // namespace

std::vector<RpcMethodName> ServedMethods() {
  std::vector<RpcMethodName> methods;
  const google::protobuf::ServiceDescriptor* const service =
      v1::StartRequest::descriptor()->file()->FindServiceByName("TrainingService");
  for (int i = 0; i < service->method_count(); ++i) {
    const google::protobuf::MethodDescriptor* const method = service->method(i);
    methods.push_back({.service = service->full_name(),
                       .method = method->name(),
                       .streams = method->client_streaming() || method->server_streaming()});
  }
  methods.push_back({.service = "grpc.health.v1.Health", .method = "Check"});
  methods.push_back({.service = "grpc.health.v1.Health", .method = "Watch", .streams = true});
  methods.push_back(
      {.service = "grpc.reflection.v1alpha.ServerReflection", .method = "ServerReflectionInfo", .streams = true});
  return methods;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> NewCallMeter(
    RpcCounters* counters, CallCounts* calls, ConnectionTable* connections) {
  return std::make_unique<CallMeterFactory>(counters, calls, connections);
}

}  // namespace lenet
