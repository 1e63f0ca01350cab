// A move-only owner of a C library's handle.
#ifndef LENET_TRAINER_BASE_UNIQUE_HANDLE_H_
#define LENET_TRAINER_BASE_UNIQUE_HANDLE_H_

#include <utility>

namespace lenet {

// `Deleter` is a stateless functor; it is called once with each handle that is not T{}, and logs what fails.
template <typename T, typename Deleter>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  explicit UniqueHandle(T handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(other.release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~UniqueHandle() { reset(); }

  T get() const { return handle_; }
  explicit operator bool() const { return handle_ != T{}; }
  T release() { return std::exchange(handle_, T{}); }
  void reset(T handle = T{}) {
    if (handle_ != T{}) Deleter{}(handle_);
    handle_ = handle;
  }
  // For a C function that makes a handle: releases the one held, and gives the place for the new one.
  T* receive() {
    reset();
    return &handle_;
  }

 private:
  T handle_{};
};

}  // namespace lenet

#endif  // LENET_TRAINER_BASE_UNIQUE_HANDLE_H_
