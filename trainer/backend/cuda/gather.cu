// A batch from the resident images: bytes by index to floats.
#include "trainer/backend/cuda/kernels.h"

namespace lenet::cuda {
namespace {

constexpr int kThreads = 256;

// The first that is not null says where image b of the batch comes from.
struct Source {
  const Chunk* chunk;
  const uint32_t* indices;
  int64_t begin;
  int64_t last;
};

__device__ int64_t SourceIndex(const Source& source, int batch, int b) {
  if (source.chunk != nullptr) {
    const uint32_t* indices = reinterpret_cast<const uint32_t*>(source.chunk + 1);
    return indices[int64_t{source.chunk->next_step} * batch + b];
  }
  if (source.indices != nullptr) return source.indices[b];
  return min(source.begin + b, source.last);
}

__global__ void GatherKernel(ImageSet set, Source source, float* x, uint8_t* batch_labels) {
  const int b = blockIdx.x;
  const int64_t index = SourceIndex(source, gridDim.x, b);
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

cudaError_t Launch(const ImageSet& set, const Source& source, int batch, float* x, uint8_t* batch_labels,
                   cudaStream_t stream) {
  GatherKernel<<<batch, kThreads, 0, stream>>>(set, source, x, batch_labels);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchGatherStep(const ImageSet& set, const Chunk* chunk, int batch, float* x, uint8_t* batch_labels,
                             cudaStream_t stream) {
  return Launch(set, {chunk, nullptr, 0, 0}, batch, x, batch_labels, stream);
}

cudaError_t LaunchGatherIndices(const ImageSet& set, const uint32_t* indices, int batch, float* x,
                                uint8_t* batch_labels, cudaStream_t stream) {
  return Launch(set, {nullptr, indices, 0, 0}, batch, x, batch_labels, stream);
}

cudaError_t LaunchGatherRange(const ImageSet& set, int64_t begin, int64_t end, int batch, float* x,
                              uint8_t* batch_labels, cudaStream_t stream) {
  return Launch(set, {nullptr, nullptr, begin, end - 1}, batch, x, batch_labels, stream);
}

}  // namespace lenet::cuda
