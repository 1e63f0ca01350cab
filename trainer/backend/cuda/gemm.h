// Matrix products through cuBLASLt with everything chosen beforehand.
#ifndef LENET_TRAINER_BACKEND_CUDA_GEMM_H_
#define LENET_TRAINER_BACKEND_CUDA_GEMM_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/backend/backend.h"
#include "trainer/backend/cuda/handles.h"

namespace lenet::cuda {

// c [m, n] = op(a) [m, k] * op(b) [k, n], all row-major and dense; op transposes or not.
struct GemmShape {
  int m = 0;
  int n = 0;
  int k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
};

enum class GemmEpilogue { kNone, kBias, kBiasRelu };

class Gemm {
 public:
  static constexpr size_t kWorkspaceBytes = size_t{8} << 20;

  // bias: [n], for the epilogues that add it to each row; read at each run. The algorithm is the library's first
  // choice for the shapes, found without timing, so the same device and library always take the same one.
  static absl::StatusOr<Gemm> Create(const Place& place, cublasLtHandle_t handle, const GemmShape& shape,
                                     GemmEpilogue epilogue, const float* bias, Precision precision);

  // workspace: kWorkspaceBytes, which no other stream uses meanwhile.
  absl::Status Run(const float* a, const float* b, float* c, void* workspace, cudaStream_t stream) const;

 private:
  Gemm() = default;

  Place place_;
  cublasLtHandle_t handle_ = nullptr;
  MatmulDescriptor operation_;
  // cuBLAS is column-major: it computes the transpose of c as op(b)' * op(a)'.
  MatrixLayout left_;
  MatrixLayout right_;
  MatrixLayout result_;
  cublasLtMatmulAlgo_t algorithm_ = {};
};

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_GEMM_H_
