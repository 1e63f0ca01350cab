#include "server/rpc/grpc_status.h"

#include <string>

#include "trainer/base/text.h"

namespace lenet {
namespace {

// A peer accepts 8 KiB of headers by default, and a byte may take three when it is escaped.
constexpr size_t kMaxMessageBytes = 2000;

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  absl::string_view message = status.message();
  std::string text = ValidUtf8(message.substr(0, kMaxMessageBytes));
  if (message.size() > kMaxMessageBytes) text += "...";
  // Both enumerations number the codes alike, as google.rpc.Code.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), text);
}

}  // namespace lenet
