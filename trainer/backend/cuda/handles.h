// Owners of the CUDA libraries' handles and memory.
#ifndef LENET_TRAINER_BACKEND_CUDA_HANDLES_H_
#define LENET_TRAINER_BACKEND_CUDA_HANDLES_H_

#include <cstddef>
#include <cstdint>

#include "trainer/backend/cuda/cuda_status.h"
#include "trainer/base/status.h"
#include "trainer/base/unique_handle.h"

namespace lenet::cuda {

// Name: an owner of a `Type`, which `destroy` frees; its failure is logged.
#define LENET_CUDA_HANDLE(Name, Type, destroy)                                       \
  struct Name##Deleter {                                                             \
    void operator()(Type handle) const { LENET_CUDA_LOG_IF_ERROR(destroy(handle)); } \
  };                                                                                 \
  using Name = UniqueHandle<Type, Name##Deleter>

LENET_CUDA_HANDLE(Stream, cudaStream_t, cudaStreamDestroy);
LENET_CUDA_HANDLE(Event, cudaEvent_t, cudaEventDestroy);
LENET_CUDA_HANDLE(Graph, cudaGraph_t, cudaGraphDestroy);
LENET_CUDA_HANDLE(GraphExec, cudaGraphExec_t, cudaGraphExecDestroy);
LENET_CUDA_HANDLE(MemoryPool, cudaMemPool_t, cudaMemPoolDestroy);

LENET_CUDA_HANDLE(CudnnHandle, cudnnHandle_t, cudnnDestroy);
LENET_CUDA_HANDLE(TensorDescriptor, cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor);
LENET_CUDA_HANDLE(FilterDescriptor, cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor);
LENET_CUDA_HANDLE(ConvolutionDescriptor, cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor);
LENET_CUDA_HANDLE(PoolingDescriptor, cudnnPoolingDescriptor_t, cudnnDestroyPoolingDescriptor);
LENET_CUDA_HANDLE(ActivationDescriptor, cudnnActivationDescriptor_t, cudnnDestroyActivationDescriptor);

LENET_CUDA_HANDLE(BlasHandle, cublasLtHandle_t, cublasLtDestroy);
LENET_CUDA_HANDLE(MatmulDescriptor, cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy);
LENET_CUDA_HANDLE(MatrixLayout, cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy);
LENET_CUDA_HANDLE(MatmulPreference, cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy);

#undef LENET_CUDA_HANDLE

// Puts the thread's current device back.
class DeviceGuard {
 public:
  DeviceGuard() { LENET_CUDA_LOG_IF_ERROR(cudaGetDevice(&device_)); }
  ~DeviceGuard() { LENET_CUDA_LOG_IF_ERROR(cudaSetDevice(device_)); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int device_ = 0;
};

// An array in the memory of the current device (kHost false), or in pinned memory of the host.
template <typename T, bool kHost>
class Array {
 public:
  // Frees what it held. RESOURCE_EXHAUSTED says how many bytes there was no room for. From `pool`, which outlives the
  // array, if that is not null.
  absl::Status Allocate(const Place& place, int64_t count, cudaMemPool_t pool = nullptr) {
    memory_.reset();
    count_ = 0;
    const size_t bytes = sizeof(T) * static_cast<size_t>(count);
    if (bytes == 0) return absl::OkStatus();
    void* pointer = nullptr;
    const cudaError_t result = kHost             ? cudaMallocHost(&pointer, bytes)
                               : pool == nullptr ? cudaMalloc(&pointer, bytes)
                                                 : cudaMallocFromPoolAsync(&pointer, bytes, pool, nullptr);
    if (result != cudaSuccess) {
      const char* const call = kHost ? "cudaMallocHost" : pool == nullptr ? "cudaMalloc" : "cudaMallocFromPoolAsync";
      return Annotate(ToStatus(result, call, place), absl::StrCat(bytes, " bytes"));
    }
    memory_.reset(static_cast<T*>(pointer));
    count_ = count;
    return absl::OkStatus();
  }

  T* get() const { return memory_.get(); }
  int64_t count() const { return count_; }
  size_t bytes() const { return sizeof(T) * static_cast<size_t>(count_); }

 private:
  struct Free {
    void operator()(T* pointer) const {
      if constexpr (kHost) {
        LENET_CUDA_LOG_IF_ERROR(cudaFreeHost(pointer));
      } else {
        LENET_CUDA_LOG_IF_ERROR(cudaFree(pointer));
      }
    }
  };
  UniqueHandle<T*, Free> memory_;
  int64_t count_ = 0;
};

template <typename T>
using DeviceArray = Array<T, false>;
template <typename T>
using PinnedArray = Array<T, true>;

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_BACKEND_CUDA_HANDLES_H_
