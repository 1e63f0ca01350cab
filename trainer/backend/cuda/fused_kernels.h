// The parts of the pass over a batch, see LaunchPass.
#ifndef LENET_TRAINER_BACKEND_CUDA_FUSED_KERNELS_H_
#define LENET_TRAINER_BACKEND_CUDA_FUSED_KERNELS_H_

#include "trainer/backend/cuda/fused_lenet.h"

namespace lenet::cuda::fused {

// --- fused_pass.cu: all of a small batch

int SharedBytesOfSmallPass(const Offsets& offsets);
cudaError_t PrepareSmallPass(const Offsets& offsets);
cudaError_t LaunchSmallPass(const PassArguments& arguments, cudaStream_t stream);

// --- fused_conv.cu: a large batch from the images to pool2, and from its gradient to the convolutions' parameters

cudaError_t PrepareConv();
cudaError_t LaunchConvForward(const PassArguments& arguments, int multiprocessors, cudaStream_t stream);
int ConvBackwardBlocks(int batch, int multiprocessors);
cudaError_t LaunchConvBackward(const PassArguments& arguments, int multiprocessors, cudaStream_t stream);

// --- fused_dense.cu: between those, from pool2 to the loss and back

int SharedBytesOfDense(int classes);
cudaError_t PrepareDense(int classes);
cudaError_t LaunchDense(const PassArguments& arguments, int multiprocessors, cudaStream_t stream);

}  // namespace lenet::cuda::fused

#endif  // LENET_TRAINER_BACKEND_CUDA_FUSED_KERNELS_H_
