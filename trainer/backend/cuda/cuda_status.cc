#include "trainer/backend/cuda/cuda_status.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "trainer/base/log.h"

namespace lenet::cuda {
namespace {

std::string Message(absl::string_view call, absl::string_view reason, absl::string_view code, const Place& place) {
  std::string message = absl::StrCat(call.substr(0, call.find('(')), ": ", reason, " (", code, ")");
  if (place.device >= 0) absl::StrAppend(&message, " on device ", place.device);
  if (place.rank >= 0) absl::StrAppend(&message, ", rank ", place.rank);
  return message;
}

}  // namespace

absl::Status ToStatus(cudaError_t result, absl::string_view call, const Place& place) {
  const std::string message = Message(call, cudaGetErrorString(result), cudaGetErrorName(result), place);
  switch (result) {
    case cudaErrorMemoryAllocation:
      // The one failure that leaves the context usable; without this the next launch check would report it again.
      (void)cudaGetLastError();
      return absl::ResourceExhaustedError(message);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
      return absl::UnavailableError(message);
    case cudaErrorNotSupported:
      return absl::UnimplementedError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status ToStatus(cublasStatus_t result, absl::string_view call, const Place& place) {
  const std::string message = Message(call, cublasLtGetStatusString(result), cublasLtGetStatusName(result), place);
  switch (result) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      return absl::ResourceExhaustedError(message);
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return absl::UnimplementedError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status ToStatus(cudnnStatus_t result, absl::string_view call, const Place& place) {
  const std::string message = Message(call, cudnnGetErrorString(result), absl::StrCat(static_cast<int>(result)), place);
  // Codes come in families of a thousand, see CUDNN_STATUS_CATEGORY.
  if (CUDNN_STATUS_CATEGORY(static_cast<int>(result)) == CUDNN_STATUS_NOT_SUPPORTED) {
    return absl::UnimplementedError(message);
  }
  if (result == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      result == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

absl::Status ToStatus(ncclResult_t result, absl::string_view call, const Place& place) {
  const char* detail = ncclGetLastError(nullptr);
  std::string message = Message(call, ncclGetErrorString(result), absl::StrCat(static_cast<int>(result)), place);
  if (detail != nullptr && *detail != '\0') absl::StrAppend(&message, ": ", detail);
  return absl::InternalError(message);
}

template <typename Result>
void LogIfError(Result result, absl::string_view call, const Place& place) {
  if (!IsSuccess(result)) Log(LogLevel::kError, std::string(ToStatus(result, call, place).message()));
}

template void LogIfError(cudaError_t, absl::string_view, const Place&);
template void LogIfError(cublasStatus_t, absl::string_view, const Place&);
template void LogIfError(cudnnStatus_t, absl::string_view, const Place&);
template void LogIfError(ncclResult_t, absl::string_view, const Place&);

}  // namespace lenet::cuda
