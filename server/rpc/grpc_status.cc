#include "server/rpc/grpc_status.h"

#include "trainer/base/text.h"

namespace lenet {
namespace {

// A peer accepts 8 KiB of headers by default, and a byte may take three when it is escaped.
constexpr size_t kMaxMessageBytes = 2000;

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Whoever prints it must not be led on by what a request has put into it. Both enumerations number the codes alike,
  // as google.rpc.Code.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), Shown(status.message(), kMaxMessageBytes));
}

}  // namespace lenet
