#include "trainer/backend/cuda/cudnn_tensors.h"

namespace lenet::cuda {

absl::Status MakeTensorDescriptor(const Place& place, int batch, const ImageShape& shape, TensorDescriptor& made) {
  LENET_CUDA_RETURN_IF_ERROR(place, cudnnCreateTensorDescriptor(made.receive()));
  LENET_CUDA_RETURN_IF_ERROR(place, cudnnSetTensor4dDescriptor(made.get(), CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, batch,
                                                               shape.channels, shape.height, shape.width));
  return absl::OkStatus();
}

absl::Status MakeActivationDescriptor(const Place& place, Activation activation, ActivationDescriptor& made) {
  const cudnnActivationMode_t mode = activation == Activation::kTanh ? CUDNN_ACTIVATION_TANH : CUDNN_ACTIVATION_RELU;
  LENET_CUDA_RETURN_IF_ERROR(place, cudnnCreateActivationDescriptor(made.receive()));
  LENET_CUDA_RETURN_IF_ERROR(place, cudnnSetActivationDescriptor(made.get(), mode, CUDNN_PROPAGATE_NAN, 0));
  return absl::OkStatus();
}

}  // namespace lenet::cuda
