// A batch from the resident images: bytes by index to floats.
#include <algorithm>

#include "trainer/backend/cuda/image_source.cuh"
#include "trainer/backend/cuda/kernels.h"

namespace lenet::cuda {
namespace {

constexpr int kThreads = 256;

// `last`: of the batch, the image that those after it are, too.
__global__ void GatherKernel(ImageSet set, Source source, int last, float* x, uint8_t* batch_labels) {
  const int b = blockIdx.x;
  const int64_t index = ImageIndex(source, gridDim.x)(min(b, last));
  const uint8_t* image = set.images + index * set.image_size;
  float* out = x + int64_t{b} * set.image_size;
  if (set.image_size % 4 == 0) {
    const uchar4* from = reinterpret_cast<const uchar4*>(image);
    float4* to = reinterpret_cast<float4*>(out);
    for (int i = threadIdx.x; i < set.image_size / 4; i += blockDim.x) {
      const uchar4 v = from[i];
      to[i] = make_float4(v.x / 255.0f, v.y / 255.0f, v.z / 255.0f, v.w / 255.0f);
    }
  } else {
    for (int i = threadIdx.x; i < set.image_size; i += blockDim.x) out[i] = image[i] / 255.0f;
  }
  if (threadIdx.x == 0) batch_labels[b] = set.labels[index];
}

cudaError_t Launch(const ImageSet& set, const Source& source, int last, int batch, float* x, uint8_t* batch_labels,
                   cudaStream_t stream) {
  GatherKernel<<<batch, kThreads, 0, stream>>>(set, source, last, x, batch_labels);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchGatherStep(const ImageSet& set, const Chunk* chunk, int batch, float* x, uint8_t* batch_labels,
                             cudaStream_t stream) {
  return Launch(set, {.chunk = chunk}, batch - 1, batch, x, batch_labels, stream);
}

cudaError_t LaunchGatherIndices(const ImageSet& set, const uint32_t* indices, int batch, float* x,
                                uint8_t* batch_labels, cudaStream_t stream) {
  return Launch(set, {.indices = indices}, batch - 1, batch, x, batch_labels, stream);
}

cudaError_t LaunchGatherRange(const ImageSet& set, int64_t begin, int64_t end, int batch, float* x,
                              uint8_t* batch_labels, cudaStream_t stream) {
  const int last = static_cast<int>(std::min<int64_t>(batch, end - begin)) - 1;
  return Launch(set, {.begin = begin}, last, batch, x, batch_labels, stream);
}

}  // namespace lenet::cuda
