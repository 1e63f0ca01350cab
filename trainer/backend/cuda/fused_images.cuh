// How a block of the fused kernels gets its images: a thread loads four pixels of the next one ahead of time.
#ifndef LENET_TRAINER_BACKEND_CUDA_FUSED_IMAGES_CUH_
#define LENET_TRAINER_BACKEND_CUDA_FUSED_IMAGES_CUH_

#include "trainer/backend/cuda/fused_values.cuh"
#include "trainer/backend/cuda/image_source.cuh"
#include "trainer/backend/cuda/tensor_core.cuh"

namespace lenet::cuda::fused {

class Images {
 public:
  static constexpr int kQuads = kPixels / 4;  // and so the threads that it takes at least

  __device__ Images(const ImageSet& set, const Source& source, int batch)
      : set_(set), index_of_(source, batch), batch_(batch) {}

  // Starts to load the index of image b of the batch, for Fetch; nothing beyond it.
  __device__ void FetchIndex(int b) {
    if (Thread() < kQuads && b < batch_) index_ = index_of_(b);
  }

  // Starts to load the image whose index FetchIndex got, and the index of image `next`: an image ahead, as a thread
  // stands still when it needs what it has just asked for.
  __device__ void Fetch(int next) {
    if (Thread() < kQuads) {
      pixels_ = reinterpret_cast<const uchar4*>(set_.images + index_ * kPixels)[Thread()];
    }
    FetchIndex(next);
  }

  __device__ void Store(Pixels& to) const {
    const int quad = Thread();
    if (quad >= kQuads) return;
    const uint32_t x = ByteToBf16(pixels_.x);
    const uint32_t y = ByteToBf16(pixels_.y);
    const uint32_t z = ByteToBf16(pixels_.z);
    const uint32_t w = ByteToBf16(pixels_.w);
    to.even[2 * quad] = x | y << 16;
    to.even[2 * quad + 1] = z | w << 16;
    to.odd[2 * quad] = y | z << 16;
    uint16_t* const odd = reinterpret_cast<uint16_t*>(to.odd);
    odd[4 * quad + 2] = static_cast<uint16_t>(w);
    odd[quad > 0 ? 4 * quad - 1 : kPixels - 1] = static_cast<uint16_t>(quad > 0 ? x : 0);
  }

 private:
  const ImageSet& set_;
  const ImageIndex index_of_;
  const int batch_;
  int64_t index_ = 0;
  uchar4 pixels_ = {};
};

}  // namespace lenet::cuda::fused

#endif  // LENET_TRAINER_BACKEND_CUDA_FUSED_IMAGES_CUH_
