// Sums over the ranks inside a kernel.
#ifndef LENET_TRAINER_COMM_PEER_SUM_CUH_
#define LENET_TRAINER_COMM_PEER_SUM_CUH_

#include <cstdint>

#include "trainer/comm/peer_memory.h"

namespace lenet::cuda {

// A rank's values go to all others' inboxes, each with the number of its sum in one word of 64 bits, so that the value
// is there when the number is, and nothing else need be waited for. Sums alternate between two halves of an inbox. Two
// are enough as long as on each rank
//   - a kernel of sum n + 1 starts only when that of sum n has ended, and
//   - every value of a sum is awaited before its kernel ends:
// then a rank that writes for sum n + 2 has all values of sum n + 1 of all ranks, and these have read those of sum n.
// All threads that wait, on all ranks, must run at once. After an abort the ranks' numbers may differ, and the memory
// is of no more use.

// All ranks call it with the same `sum`, one more each time and never 0, and `at` < kMaxPeerValues, once for each pair;
// then SumOverPeers.
__device__ __forceinline__ void SendToPeers(const Peers& peers, uint32_t sum, int64_t at, float value) {
  const int64_t slot = ((sum & 1) * int64_t{peers.ranks} + peers.rank) * kMaxPeerValues + at;
  const uint64_t word = uint64_t{sum} << 32 | __float_as_uint(value);
#pragma unroll
  for (int r = 0; r < kMaxPeers; ++r) {
    if (r >= peers.ranks) break;
    if (r == peers.rank) continue;
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(peers.inboxes[r] + slot), "l"(word) : "memory");
  }
}

// The sum over the ranks of what they sent, in the order of the ranks: the same bits on all. `own` is this rank's.
__device__ __forceinline__ float SumOverPeers(const Peers& peers, uint32_t sum, int64_t at, float own) {
  constexpr uint32_t kPollsPerLook = 1024;
  const auto load = [](const uint64_t* slot) {
    uint64_t word = 0;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(slot) : "memory");
    return word;
  };
  const uint64_t* const slots = peers.inboxes[peers.rank] + (sum & 1) * int64_t{peers.ranks} * kMaxPeerValues + at;
  uint64_t words[kMaxPeers];
#pragma unroll
  for (int r = 0; r < kMaxPeers; ++r) {
    if (r < peers.ranks && r != peers.rank) words[r] = load(slots + r * kMaxPeerValues);
  }
  float total = 0;
#pragma unroll
  for (int r = 0; r < kMaxPeers; ++r) {
    if (r >= peers.ranks) break;
    float value = own;
    if (r != peers.rank) {
      for (uint32_t polls = 1; static_cast<uint32_t>(words[r] >> 32) != sum; ++polls) {
        if (polls % kPollsPerLook == 0 && *const_cast<const volatile int32_t*>(peers.aborted) != 0) break;
        words[r] = load(slots + r * kMaxPeerValues);
      }
      value = __uint_as_float(static_cast<uint32_t>(words[r]));
    }
    total = r == 0 ? value : total + value;
  }
  return total;
}

}  // namespace lenet::cuda

#endif  // LENET_TRAINER_COMM_PEER_SUM_CUH_
