#include "server/rpc/grpc_status.h"

#include <string>

#include "gtest/gtest.h"

namespace lenet {
namespace {

TEST(GrpcStatusTest, EveryCodeHasItsLike) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  const std::pair<absl::StatusCode, grpc::StatusCode> codes[] = {
      {absl::StatusCode::kCancelled, grpc::StatusCode::CANCELLED},
      {absl::StatusCode::kUnknown, grpc::StatusCode::UNKNOWN},
      {absl::StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT},
      {absl::StatusCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED},
      {absl::StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND},
      {absl::StatusCode::kAlreadyExists, grpc::StatusCode::ALREADY_EXISTS},
      {absl::StatusCode::kPermissionDenied, grpc::StatusCode::PERMISSION_DENIED},
      {absl::StatusCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {absl::StatusCode::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION},
      {absl::StatusCode::kAborted, grpc::StatusCode::ABORTED},
      {absl::StatusCode::kOutOfRange, grpc::StatusCode::OUT_OF_RANGE},
      {absl::StatusCode::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED},
      {absl::StatusCode::kInternal, grpc::StatusCode::INTERNAL},
      {absl::StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE},
      {absl::StatusCode::kDataLoss, grpc::StatusCode::DATA_LOSS},
      {absl::StatusCode::kUnauthenticated, grpc::StatusCode::UNAUTHENTICATED},
  };
  for (const auto& [from, to] : codes) {
    const grpc::Status status = ToGrpcStatus(absl::Status(from, "why"));
    EXPECT_EQ(status.error_code(), to);
    EXPECT_EQ(status.error_message(), "why");
  }
}

TEST(GrpcStatusTest, MessagesAreValidAndShort) {
  EXPECT_EQ(ToGrpcStatus(absl::InternalError("a\xFF")).error_message(), "a?");
  EXPECT_EQ(ToGrpcStatus(absl::InternalError("a\n\x1b")).error_message(), "a\\n\\x1b");
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(std::string(100000, 'x'))).error_message().size(), 2000u);
}

}  // namespace
}  // namespace lenet
