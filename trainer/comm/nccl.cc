#include "trainer/comm/nccl.h"

#include <chrono>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet::cuda {
namespace {

constexpr std::chrono::seconds kFirstCollectiveTimeout(60);

}  // namespace

void SetNcclDefaults() {
  constexpr std::pair<const char*, const char*> kDefaults[] = {
      {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_RUNTIME_CONNECT", "0"}, {"NCCL_GRAPH_REGISTER", "0"}};
  for (const auto& [name, value] : kDefaults) setenv(name, value, /*overwrite=*/0);
}

absl::StatusOr<std::vector<std::unique_ptr<NcclCommunicator>>> NcclCommunicator::CreateAll(
    std::span<const int> devices, std::span<const Place> places, std::span<const cudaStream_t> streams) {
  const int size = static_cast<int>(devices.size());
  std::vector<ncclComm_t> communicators(devices.size());
  LENET_CUDA_RETURN_IF_ERROR(Place{}, ncclCommInitAll(communicators.data(), size, devices.data()));
  std::vector<std::unique_ptr<NcclCommunicator>> ends;
  for (int rank = 0; rank < size; ++rank) {
    ends.emplace_back(new NcclCommunicator(communicators[rank], places[rank]));
  }
  // Outlive the abort: freeing memory may wait for kernels that hang.
  std::vector<DeviceArray<float>> buffers(devices.size());
  absl::Status status = FirstCollectives(devices, places, streams, ends, buffers);
  if (!status.ok()) {
    for (auto& end : ends) end->Abort([] {});
    return status;
  }
  return ends;
}

// What NCCL puts off until the first collective is done here.
absl::Status NcclCommunicator::FirstCollectives(std::span<const int> devices, std::span<const Place> places,
                                                std::span<const cudaStream_t> streams,
                                                std::span<const std::unique_ptr<NcclCommunicator>> ends,
                                                std::span<DeviceArray<float>> buffers) {
  constexpr int64_t kCount = 1024;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    LENET_CUDA_RETURN_IF_ERROR(places[rank], cudaSetDevice(devices[rank]));
    LENET_RETURN_IF_ERROR(buffers[rank].Allocate(places[rank], kCount));
    LENET_CUDA_RETURN_IF_ERROR(places[rank],
                               cudaMemsetAsync(buffers[rank].get(), 0, buffers[rank].bytes(), streams[rank]));
  }
  for (const bool broadcast : {true, false}) {
    LENET_CUDA_RETURN_IF_ERROR(Place{}, ncclGroupStart());
    absl::Status status;
    for (size_t rank = 0; rank < ends.size() && status.ok(); ++rank) {
      status = broadcast ? ends[rank]->Broadcast(buffers[rank].get(), kCount, streams[rank])
                         : ends[rank]->AllReduceSum(buffers[rank].get(), kCount, streams[rank]);
    }
    const ncclResult_t launched = ncclGroupEnd();
    LENET_RETURN_IF_ERROR(status);
    LENET_CUDA_RETURN_IF_ERROR(Place{}, launched);
  }
  const auto deadline = std::chrono::steady_clock::now() + kFirstCollectiveTimeout;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    cudaError_t result = cudaErrorNotReady;
    while ((result = cudaStreamQuery(streams[rank])) == cudaErrorNotReady) {
      (void)cudaGetLastError();  // not an error, but kept as one
      LENET_RETURN_IF_ERROR(ends[rank]->AsyncError());
      if (std::chrono::steady_clock::now() > deadline) {
        return absl::DeadlineExceededError(absl::StrCat("the first NCCL collective of ", ends.size(),
                                                        " devices did not end within ", kFirstCollectiveTimeout.count(),
                                                        " s"));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    LENET_CUDA_RETURN_IF_ERROR(places[rank], result);
  }
  return absl::OkStatus();
}

NcclCommunicator::~NcclCommunicator() {
  if (communicator_ != nullptr) LENET_CUDA_LOG_IF_ERROR(ncclCommDestroy(communicator_));
}

absl::Status NcclCommunicator::AllReduceSum(float* data, int64_t count, void* stream) {
  if (communicator_ == nullptr) return absl::AbortedError("the communicator is aborted");
  LENET_CUDA_RETURN_IF_ERROR(place_, ncclAllReduce(data, data, static_cast<size_t>(count), ncclFloat, ncclSum,
                                                   communicator_, static_cast<cudaStream_t>(stream)));
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Broadcast(float* data, int64_t count, void* stream) {
  if (communicator_ == nullptr) return absl::AbortedError("the communicator is aborted");
  LENET_CUDA_RETURN_IF_ERROR(place_, ncclBroadcast(data, data, static_cast<size_t>(count), ncclFloat, /*root=*/0,
                                                   communicator_, static_cast<cudaStream_t>(stream)));
  return absl::OkStatus();
}

absl::Status NcclCommunicator::AsyncError() const {
  if (communicator_ == nullptr) return absl::OkStatus();
  ncclResult_t error = ncclSuccess;
  LENET_CUDA_RETURN_IF_ERROR(place_, ncclCommGetAsyncError(communicator_, &error));
  if (error == ncclInProgress) return absl::OkStatus();
  LENET_CUDA_RETURN_IF_ERROR(place_, error);
  return absl::OkStatus();
}

void NcclCommunicator::Abort(absl::FunctionRef<void()> destroy_graphs) {
  const ncclComm_t communicator = std::exchange(communicator_, nullptr);
  if (communicator == nullptr) return;
  const auto abort = [this, communicator] { LogIfError(ncclCommAbort(communicator), "ncclCommAbort", place_); };
  // On a thread of its own, as it tells the kernels first and then waits for the graphs.
  std::thread aborter;
  try {
    aborter = std::thread(abort);
  } catch (const std::system_error& error) {
    Log(LogLevel::kError, absl::StrCat("rank ", place_.rank, ": no thread to abort NCCL with: ", error.what()));
  }
  destroy_graphs();
  if (aborter.joinable()) {
    aborter.join();
  } else {
    abort();
  }
}

}  // namespace lenet::cuda
