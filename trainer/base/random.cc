#include "trainer/base/random.h"

namespace lenet {
namespace {

constexpr uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
constexpr uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

}  // namespace

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {High(product1) ^ counter[1] ^ key[0], Low(product1), High(product0) ^ counter[3] ^ key[1],
               Low(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

std::array<uint32_t, 4> RandomBlock(uint64_t seed, uint64_t stream, uint64_t block) {
  return Philox({Low(block), High(block), Low(stream), High(stream)}, {Low(seed), High(seed)});
}

float UniformFloat(uint64_t seed, uint64_t stream, uint64_t index) {
  const uint32_t word = RandomBlock(seed, stream, index / 4)[index % 4];
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

}  // namespace lenet
