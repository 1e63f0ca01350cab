// Results of the CUDA runtime, cuBLAS, cuDNN and NCCL as absl::Status.
#ifndef LENET_TRAINER_BACKEND_CUDA_CUDA_STATUS_H_
#define LENET_TRAINER_BACKEND_CUDA_CUDA_STATUS_H_

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lenet::cuda {

// Where a call was made, for its error.
struct Place {
  int device = -1;  // the backend's id; -1: none in particular
  int rank = -1;    // -1: none in particular
};

// The status of a result that is not success: `call` is the call's source text, of which the function's name is kept.
//   RESOURCE_EXHAUSTED  memory of the device or the host
//   UNAVAILABLE         no device, no driver, or one too old
//   UNIMPLEMENTED       the library does not offer this for these shapes on this device
//   INTERNAL            everything else; after a sticky error every later call of the process gives it again
absl::Status ToStatus(cudaError_t result, absl::string_view call, const Place& place);
absl::Status ToStatus(cublasStatus_t result, absl::string_view call, const Place& place);
absl::Status ToStatus(cudnnStatus_t result, absl::string_view call, const Place& place);
absl::Status ToStatus(ncclResult_t result, absl::string_view call, const Place& place);

inline bool IsSuccess(cudaError_t result) { return result == cudaSuccess; }
inline bool IsSuccess(cublasStatus_t result) { return result == CUBLAS_STATUS_SUCCESS; }
inline bool IsSuccess(cudnnStatus_t result) { return result == CUDNN_STATUS_SUCCESS; }
inline bool IsSuccess(ncclResult_t result) { return result == ncclSuccess; }

// For destructors: logs a result that is not success.
template <typename Result>
void LogIfError(Result result, absl::string_view call, const Place& place = {});

}  // namespace lenet::cuda

// Returns from the enclosing function with the error of `call`, whichever library's result it gives.
#define LENET_CUDA_RETURN_IF_ERROR(place, call)                                      \
  do {                                                                               \
    if (const auto lenet_result = (call); !::lenet::cuda::IsSuccess(lenet_result)) { \
      return ::lenet::cuda::ToStatus(lenet_result, #call, (place));                  \
    }                                                                                \
  } while (false)

#define LENET_CUDA_LOG_IF_ERROR(call) ::lenet::cuda::LogIfError((call), #call)

#endif  // LENET_TRAINER_BACKEND_CUDA_CUDA_STATUS_H_
