// Counter-based random numbers: every value is a pure function of (seed, stream, index), so that any thread, rank or
// device can draw any of them without state.
#ifndef LENET_TRAINER_BASE_RANDOM_H_
#define LENET_TRAINER_BASE_RANDOM_H_

#include <array>
#include <cstdint>

namespace lenet {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Streams that must not share numbers. A layer's parameter p uses kInitStream + p.
inline constexpr uint64_t kShuffleStream = 1;
inline constexpr uint64_t kInitStream = uint64_t{1} << 32;

// The `block`-th four words of `stream` under `seed`.
std::array<uint32_t, 4> RandomBlock(uint64_t seed, uint64_t stream, uint64_t block);

// Uniform in [0, 1), 24 bits; the `index`-th number of `stream` under `seed`: word index % 4 of block index / 4.
float UniformFloat(uint64_t seed, uint64_t stream, uint64_t index);

}  // namespace lenet

#endif  // LENET_TRAINER_BASE_RANDOM_H_
