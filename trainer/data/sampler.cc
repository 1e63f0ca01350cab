#include "trainer/data/sampler.h"

#include <algorithm>
#include <array>
#include <bit>

#include "trainer/base/random.h"

namespace lenet {
namespace {

constexpr int kRounds = 8;
constexpr int kMinBits = 8;  // a narrower network permutes less well

// The permutation of one epoch, with its round keys drawn.
class Permutation {
 public:
  Permutation(uint64_t seed, uint64_t epoch, uint32_t count) : count_(count) {
    constexpr int kBlocks = kRounds / 4;
    for (int block = 0; block < kBlocks; ++block) {
      const std::array<uint32_t, 4> words = RandomBlock(seed, kShuffleStream, epoch * kBlocks + block);
      for (int word = 0; word < 4; ++word) keys_[4 * block + word] = words[word];
    }
    const int bits = std::max(kMinBits, static_cast<int>(std::bit_width(count - 1)));
    right_bits_ = bits / 2;
    right_mask_ = (uint32_t{1} << right_bits_) - 1;
    left_mask_ = (uint32_t{1} << (bits - right_bits_)) - 1;
  }

  uint32_t operator()(uint32_t index) const {
    // The domain is less than twice `count` (but for the smallest sets), so this takes 2 turns at most on average.
    do {
      index = Encrypt(index);
    } while (index >= count_);
    return index;
  }

 private:
  // A 32-bit mixer (two multiplications; each bit of the result depends on every bit of x).
  static uint32_t Mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352d;
    x ^= x >> 15;
    x *= 0x846ca68b;
    x ^= x >> 16;
    return x;
  }

  uint32_t Encrypt(uint32_t index) const {
    uint32_t left = index >> right_bits_;
    uint32_t right = index & right_mask_;
    for (int round = 0; round < kRounds; round += 2) {
      left ^= Mix(right ^ keys_[round]) & left_mask_;
      right ^= Mix(left ^ keys_[round + 1]) & right_mask_;
    }
    return left << right_bits_ | right;
  }

  const uint32_t count_;
  int right_bits_;
  uint32_t left_mask_;
  uint32_t right_mask_;
  std::array<uint32_t, kRounds> keys_;
};

}  // namespace

EpochSampler::EpochSampler(uint64_t seed, int64_t count, int ranks, int batch_size)
    : seed_(seed), count_(count), batch_size_(batch_size), global_batch_(int64_t{batch_size} * ranks) {}

void EpochSampler::Batch(int64_t epoch, int64_t step, int rank, std::span<uint32_t> out) const {
  const Permutation permutation(seed_, static_cast<uint64_t>(epoch), static_cast<uint32_t>(count_));
  uint32_t position = static_cast<uint32_t>(step * global_batch_ + int64_t{rank} * batch_size_);
  for (uint32_t& index : out) index = permutation(position++);
}

uint32_t PermutedIndex(uint64_t seed, uint64_t epoch, uint32_t count, uint32_t index) {
  return Permutation(seed, epoch, count)(index);
}

}  // namespace lenet
