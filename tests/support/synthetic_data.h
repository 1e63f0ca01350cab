// Small labelled images made from a seed.
#ifndef LENET_TESTS_SUPPORT_SYNTHETIC_DATA_H_
#define LENET_TESTS_SUPPORT_SYNTHETIC_DATA_H_

#include <cstdint>
#include <memory>

#include "trainer/data/dataset.h"

namespace lenet {

// 28x28 images of 10 classes: a bright square whose place is the label's, on noise. A network learns them in a few
// dozen steps.
std::shared_ptr<const Dataset> SyntheticDataset(int64_t train_count, int64_t test_count, uint64_t seed = 1);

// Images of any shape: noise, with random labels. Every class has an image where there are as many.
std::shared_ptr<const Dataset> NoiseDataset(const ImageShape& shape, int classes, int64_t train_count,
                                            int64_t test_count, uint64_t seed = 1);

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_SYNTHETIC_DATA_H_
