// Which images of the set make up a batch.
#ifndef LENET_TRAINER_BACKEND_CUDA_IMAGE_SOURCE_CUH_
#define LENET_TRAINER_BACKEND_CUDA_IMAGE_SOURCE_CUH_

#include <cstdint>

#include "trainer/backend/cuda/kernels.h"

namespace lenet::cuda {

// The index in the set of image b of a batch.
class ImageIndex {
 public:
  __device__ ImageIndex(const Source& source, int batch) : indices_(source.indices), begin_(source.begin) {
    if (source.chunk == nullptr) return;
    indices_ = reinterpret_cast<const uint32_t*>(source.chunk + 1) + int64_t{source.chunk->next_step} * batch;
  }
  __device__ int64_t operator()(int b) const { return indices_ != nullptr ? indices_[b] : begin_ + b; }

 private:
  const uint32_t* indices_;  // [batch]; null: they follow each other
  int64_t begin_;
};

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_IMAGE_SOURCE_CUH_
