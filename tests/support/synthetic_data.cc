#include "tests/support/synthetic_data.h"

#include <random>

namespace lenet {
namespace {

constexpr int kClasses = 10;
constexpr int kSide = 28;

Split MakeSplit(int64_t count, std::mt19937_64* random) {
  Split split = {.shape = {1, kSide, kSide}, .count = count};
  split.images.resize(static_cast<size_t>(count * kSide * kSide));
  split.labels.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    // The first ten show every class, so that even a tiny set has all of them.
    const int label = i < kClasses ? static_cast<int>(i) : static_cast<int>((*random)() % kClasses);
    split.labels[static_cast<size_t>(i)] = static_cast<uint8_t>(label);
    uint8_t* image = split.images.data() + i * kSide * kSide;
    const int top = 2 + label / 5 * 14;
    const int left = 1 + label % 5 * 5;
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) {
        const bool bright = y >= top && y < top + 10 && x >= left && x < left + 5;
        image[y * kSide + x] = static_cast<uint8_t>((bright ? 160 : 0) + (*random)() % 96);
      }
    }
  }
  return split;
}

Split MakeNoise(const ImageShape& shape, int classes, int64_t count, std::mt19937_64* random) {
  Split split = {.shape = shape, .count = count};
  for (int64_t i = 0; i < count * shape.size(); ++i) split.images.push_back(static_cast<uint8_t>((*random)()));
  for (int64_t i = 0; i < count; ++i) {
    split.labels.push_back(static_cast<uint8_t>(i < classes ? i : static_cast<int64_t>((*random)() % classes)));
  }
  return split;
}

}  // namespace

std::shared_ptr<const Dataset> SyntheticDataset(int64_t train_count, int64_t test_count, uint64_t seed) {
  std::mt19937_64 random(seed);
  auto dataset = std::make_shared<Dataset>();
  dataset->name = "synthetic";
  dataset->classes = kClasses;
  dataset->train = MakeSplit(train_count, &random);
  dataset->test = MakeSplit(test_count, &random);
  return dataset;
}

std::shared_ptr<const Dataset> NoiseDataset(const ImageShape& shape, int classes, int64_t train_count,
                                            int64_t test_count, uint64_t seed) {
  std::mt19937_64 random(seed);
  auto dataset = std::make_shared<Dataset>();
  dataset->name = "noise";
  dataset->classes = classes;
  dataset->train = MakeNoise(shape, classes, train_count, &random);
  dataset->test = MakeNoise(shape, classes, test_count, &random);
  return dataset;
}

}  // namespace lenet
