// Memory for floats that starts at a cache line.
#ifndef LENET_TRAINER_BACKEND_CPU_ALIGNED_FLOATS_H_
#define LENET_TRAINER_BACKEND_CPU_ALIGNED_FLOATS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

namespace lenet::cpu {

class AlignedFloats {
 public:
  AlignedFloats() = default;

  // `count` zeros; false, and empty, if there is no memory for them.
  bool Allocate(int64_t count) {
    const size_t size = static_cast<size_t>(count);
    data_.reset(static_cast<float*>(::operator new(size * sizeof(float), kAlignment, std::nothrow)));
    size_ = data_ != nullptr ? size : 0;
    std::fill_n(data_.get(), size_, 0.0f);
    return data_ != nullptr;
  }

  float* data() const { return data_.get(); }
  std::span<float> span() const { return {data_.get(), size_}; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(float* p) const { ::operator delete(p, kAlignment); }
  };

  std::unique_ptr<float, Delete> data_;
  size_t size_ = 0;
};

}  // namespace lenet::cpu

#endif  // LENET_TRAINER_BACKEND_CPU_ALIGNED_FLOATS_H_
