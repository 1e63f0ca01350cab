// The order in which an epoch visits the training set.
#ifndef LENET_TRAINER_DATA_SAMPLER_H_
#define LENET_TRAINER_DATA_SAMPLER_H_

#include <cstdint>
#include <span>

namespace lenet {

// Samples of the global batch of step s within an epoch are positions s * G .. s * G + G - 1 of a permutation that
// depends on (seed, epoch) alone; rank r takes B of them from s * G + r * B, where B is the batch of one rank and
// G = B * ranks. So the same global batch is drawn for every number of ranks, ranks are disjoint, and all ranks make
// steps_per_epoch() steps. The last count % G samples of an epoch's order are not visited in that epoch.
class EpochSampler {
 public:
  // 1 <= count < 2^32, ranks >= 1, batch_size >= 1.
  EpochSampler(uint64_t seed, int64_t count, int ranks, int batch_size);

  int64_t steps_per_epoch() const { return count_ / global_batch_; }
  int64_t dropped_per_epoch() const { return count_ % global_batch_; }

  // Fills out[0 .. batch_size) with the sample indices of `rank` at `step` (below steps_per_epoch) of `epoch`, both
  // counted from 0.
  void Batch(int64_t epoch, int64_t step, int rank, std::span<uint32_t> out) const;

 private:
  const uint64_t seed_;
  const int64_t count_;
  const int batch_size_;
  const int64_t global_batch_;
};

// The image of `index` under a permutation of [0, count) chosen by (seed, epoch): an alternating Feistel network over
// the least number of bits, and at least 8, that holds `count`, walked until it lands below it (Black and Rogaway,
// "Ciphers with arbitrary finite domains", CT-RSA 2002). Needs no table; an element takes 4 walks at most on
// average, whatever comes before it.
// 0 <= index < count.
uint32_t PermutedIndex(uint64_t seed, uint64_t epoch, uint32_t count, uint32_t index);

}  // namespace lenet

#endif  // LENET_TRAINER_DATA_SAMPLER_H_
