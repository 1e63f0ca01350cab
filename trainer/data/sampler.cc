#include "trainer/data/sampler.h"

#include <algorithm>
#include <array>
#include <bit>

#include "trainer/base/random.h"

namespace lenet {
namespace {

constexpr int kRounds = 8;
constexpr int kMinBits = 8;  // a narrower network permutes less well
constexpr int kBlock = 64;   // elements that go through the network at once

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

  // The image of an element, given the first turn of its walk.
  uint32_t Walk(uint32_t index) const {
    // The domain is less than twice `count` (but for the smallest sets), so this takes 2 turns at most on average.
    while (index >= count_) index = Encrypt(index);
    return index;
  }

  // The first turns of kBlock elements from `first` on.
  [[gnu::always_inline]] void EncryptBlock(uint32_t first, uint32_t* out) const {
    for (int i = 0; i < kBlock; ++i) out[i] = Encrypt(first + static_cast<uint32_t>(i));
  }

  // One turn. Of an element beyond the domain a number without meaning.
  [[gnu::always_inline]] uint32_t Encrypt(uint32_t index) const {
    uint32_t left = index >> right_bits_;
    uint32_t right = index & right_mask_;
    for (int round = 0; round < kRounds; round += 2) {
      left ^= Mix(right ^ keys_[round]) & left_mask_;
      right ^= Mix(left ^ keys_[round + 1]) & right_mask_;
    }
    return left << right_bits_ | right;
  }

 private:
  // A 32-bit mixer (two multiplications; each bit of the result depends on every bit of x).
  [[gnu::always_inline]] static uint32_t Mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352d;
    x ^= x >> 15;
    x *= 0x846ca68b;
    x ^= x >> 16;
    return x;
  }

  const uint32_t count_;
  int right_bits_;
  uint32_t left_mask_;
  uint32_t right_mask_;
  std::array<uint32_t, kRounds> keys_;
};

// Permutation::EncryptBlock, for what the processor has.
using BlockFunction = void (*)(const Permutation&, uint32_t first, uint32_t* out);

void EncryptBlock(const Permutation& permutation, uint32_t first, uint32_t* out) {
  permutation.EncryptBlock(first, out);
}

#ifdef __x86_64__
[[gnu::target("avx2")]] void EncryptBlockAvx2(const Permutation& permutation, uint32_t first, uint32_t* out) {
  permutation.EncryptBlock(first, out);
}

BlockFunction FastestBlockFunction() { return __builtin_cpu_supports("avx2") ? EncryptBlockAvx2 : EncryptBlock; }
#else
BlockFunction FastestBlockFunction() { return EncryptBlock; }
#endif

}  // namespace

EpochSampler::EpochSampler(uint64_t seed, int64_t count, int ranks, int batch_size)
    : seed_(seed), count_(count), batch_size_(batch_size), global_batch_(int64_t{batch_size} * ranks) {}

void EpochSampler::Batch(int64_t epoch, int64_t step, int rank, std::span<uint32_t> out) const {
  const Permutation permutation(seed_, static_cast<uint64_t>(epoch), static_cast<uint32_t>(count_));
  static const BlockFunction encrypt_block = FastestBlockFunction();
  uint32_t position = static_cast<uint32_t>(step * global_batch_ + int64_t{rank} * batch_size_);
  for (size_t begin = 0; begin < out.size(); begin += kBlock, position += kBlock) {
    std::array<uint32_t, kBlock> block;
    encrypt_block(permutation, position, block.data());
    const size_t size = std::min<size_t>(kBlock, out.size() - begin);
    for (size_t i = 0; i < size; ++i) out[begin + i] = permutation.Walk(block[i]);
  }
}

uint32_t PermutedIndex(uint64_t seed, uint64_t epoch, uint32_t count, uint32_t index) {
  const Permutation permutation(seed, epoch, count);
  return permutation.Walk(permutation.Encrypt(index));
}

}  // namespace lenet
