#include "trainer/backend/cuda/gemm.h"

#include "absl/strings/str_cat.h"

namespace lenet::cuda {
namespace {

cublasLtEpilogue_t LtEpilogue(GemmEpilogue epilogue) {
  switch (epilogue) {
    case GemmEpilogue::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case GemmEpilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case GemmEpilogue::kBiasRelu:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

absl::StatusOr<Gemm> Gemm::Create(const Place& place, cublasLtHandle_t handle, const GemmShape& shape,
                                  GemmEpilogue epilogue, const float* bias, Precision precision) {
  Gemm gemm;
  gemm.place_ = place;
  gemm.handle_ = handle;
  // Neither TF32 nor an emulation of float32 unless asked for.
  const cublasComputeType_t compute = precision == Precision::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  LENET_CUDA_RETURN_IF_ERROR(place, cublasLtMatmulDescCreate(gemm.operation_.receive(), compute, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return cublasLtMatmulDescSetAttribute(gemm.operation_.get(), attribute, &value, sizeof(value));
  };
  LENET_CUDA_RETURN_IF_ERROR(place, set(CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  LENET_CUDA_RETURN_IF_ERROR(place, set(CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  LENET_CUDA_RETURN_IF_ERROR(place, set(CUBLASLT_MATMUL_DESC_EPILOGUE, LtEpilogue(epilogue)));
  if (epilogue != GemmEpilogue::kNone) {
    LENET_CUDA_RETURN_IF_ERROR(place, set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
  }
  const auto layout = [](MatrixLayout& made, int rows, int columns) {
    return cublasLtMatrixLayoutCreate(made.receive(), CUDA_R_32F, static_cast<uint64_t>(rows),
                                      static_cast<uint64_t>(columns), rows);
  };
  const int m = shape.m;
  const int n = shape.n;
  const int k = shape.k;
  LENET_CUDA_RETURN_IF_ERROR(place, shape.transpose_b ? layout(gemm.left_, k, n) : layout(gemm.left_, n, k));
  LENET_CUDA_RETURN_IF_ERROR(place, shape.transpose_a ? layout(gemm.right_, m, k) : layout(gemm.right_, k, m));
  LENET_CUDA_RETURN_IF_ERROR(place, layout(gemm.result_, n, m));

  MatmulPreference preference;
  LENET_CUDA_RETURN_IF_ERROR(place, cublasLtMatmulPreferenceCreate(preference.receive()));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value));
  };
  LENET_CUDA_RETURN_IF_ERROR(place, prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes));
  // A split along k sums in its workspace, in order, or not at all.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  LENET_CUDA_RETURN_IF_ERROR(place, prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  LENET_CUDA_RETURN_IF_ERROR(place, cublasLtMatmulAlgoGetHeuristic(
                                        handle, gemm.operation_.get(), gemm.left_.get(), gemm.right_.get(),
                                        gemm.result_.get(), gemm.result_.get(), preference.get(), 1, &found, &count));
  if (count == 0 || found.state != CUBLAS_STATUS_SUCCESS) {
    return absl::UnimplementedError(absl::StrCat("cuBLAS has no algorithm for a matrix product of ", m, "x", k, "x", n,
                                                 " on device ", place.device));
  }
  gemm.algorithm_ = found.algo;
  return gemm;
}

absl::Status Gemm::Run(const float* a, const float* b, float* c, void* workspace, cudaStream_t stream) const {
  const float alpha = 1;
  const float beta = 0;
  LENET_CUDA_RETURN_IF_ERROR(
      place_, cublasLtMatmul(handle_, operation_.get(), &alpha, b, left_.get(), a, right_.get(), &beta, c,
                             result_.get(), c, result_.get(), &algorithm_, workspace, kWorkspaceBytes, stream));
  return absl::OkStatus();
}

}  // namespace lenet::cuda
