#include "trainer/comm/peer_memory.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "trainer/base/status.h"

namespace lenet::cuda {
namespace {

// So that all threads of the largest sum run at once: a multiprocessor takes 1024 at least.
constexpr int kLeastMultiprocessors = static_cast<int>(kMaxPeerValues / 1024);

}  // namespace

absl::StatusOr<std::string> PeerMemory::WhyNot(std::span<const int> devices) {
  if (devices.size() > kMaxPeers) return absl::StrCat("there are more than ", kMaxPeers, " ranks");
  for (const int device : devices) {
    const Place place = {.device = device};
    int multiprocessors = 0;
    LENET_CUDA_RETURN_IF_ERROR(place, cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    if (multiprocessors < kLeastMultiprocessors) {
      return absl::StrCat("device ", device, " has ", multiprocessors, " multiprocessors, ", kLeastMultiprocessors,
                          " are needed");
    }
    int pools = 0;
    LENET_CUDA_RETURN_IF_ERROR(place, cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device));
    if (pools == 0) return absl::StrCat("device ", device, " has no memory pools");
    for (const int peer : devices) {
      if (peer == device) continue;
      int reaches = 0;
      LENET_CUDA_RETURN_IF_ERROR(place, cudaDeviceCanAccessPeer(&reaches, device, peer));
      if (reaches == 0) return absl::StrCat("device ", device, " cannot reach the memory of device ", peer);
    }
  }
  return std::string();
}

absl::StatusOr<std::unique_ptr<PeerMemory>> PeerMemory::Create(std::span<const int> devices,
                                                               std::span<const Place> places) {
  auto memory = std::make_unique<PeerMemory>();
  LENET_RETURN_IF_ERROR(memory->aborted_.Allocate(Place{}, 1));
  *memory->aborted_.get() = 0;
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    const Place& place = places[rank];
    LENET_CUDA_RETURN_IF_ERROR(place, cudaSetDevice(devices[rank]));
    Inbox& inbox = memory->inboxes_.emplace_back();
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {.type = cudaMemLocationTypeDevice, .id = devices[rank]};
    LENET_CUDA_RETURN_IF_ERROR(place, cudaMemPoolCreate(inbox.pool.receive(), &properties));
    std::vector<cudaMemAccessDesc> access;
    for (const int peer : devices) {
      if (peer == devices[rank]) continue;
      access.push_back(
          {.location = {.type = cudaMemLocationTypeDevice, .id = peer}, .flags = cudaMemAccessFlagsProtReadWrite});
    }
    LENET_CUDA_RETURN_IF_ERROR(place, cudaMemPoolSetAccess(inbox.pool.get(), access.data(), access.size()));
    LENET_RETURN_IF_ERROR(
        inbox.values.Allocate(place, 2 * static_cast<int64_t>(devices.size()) * kMaxPeerValues, inbox.pool.get()));
    LENET_CUDA_RETURN_IF_ERROR(place, cudaMemset(inbox.values.get(), 0, inbox.values.bytes()));
    LENET_CUDA_RETURN_IF_ERROR(place, cudaDeviceSynchronize());
  }
  return memory;
}

void PeerMemory::Abort() { std::atomic_ref(*aborted_.get()).store(1, std::memory_order_release); }

Peers PeerMemory::peers(int rank) const {
  Peers peers = {.ranks = static_cast<int>(inboxes_.size()), .rank = rank, .aborted = aborted_.get()};
  for (size_t r = 0; r < inboxes_.size(); ++r) peers.inboxes[r] = inboxes_[r].values.get();
  return peers;
}

}  // namespace lenet::cuda
