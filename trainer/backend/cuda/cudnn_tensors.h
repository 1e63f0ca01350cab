// cuDNN descriptors of this program's tensors: float32, packed, [N, C, H, W].
#ifndef LENET_TRAINER_BACKEND_CUDA_CUDNN_TENSORS_H_
#define LENET_TRAINER_BACKEND_CUDA_CUDNN_TENSORS_H_

#include "absl/status/status.h"
#include "trainer/backend/cuda/handles.h"
#include "trainer/backend/cuda/kernels.h"
#include "trainer/data/dataset.h"

namespace lenet::cuda {

absl::Status MakeTensorDescriptor(const Place& place, int batch, const ImageShape& shape, TensorDescriptor& made);

// kRelu or kTanh; a NaN stays one.
absl::Status MakeActivationDescriptor(const Place& place, Activation activation, ActivationDescriptor& made);

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_CUDNN_TENSORS_H_
