// MNIST and Fashion-MNIST, where this machine has them.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/data/catalog.h"

namespace lenet {
namespace {

struct Known {
  const char* name;
  const char* root;
  double mean;  // of the training pixels / 255
  double deviation;
  std::vector<int> class_counts;  // of the training labels
};

void PrintTo(const Known& known, std::ostream* out) { *out << known.name; }

class RealDataTest : public ::testing::TestWithParam<Known> {};

TEST_P(RealDataTest, HasItsKnownCountsMeanAndDeviation) {
  const Known& known = GetParam();
  DatasetCatalog catalog({known.root});
  if (!catalog.Resolve(known.name).ok()) GTEST_SKIP() << "there is no " << known.name << " in " << known.root;
  const auto loaded = catalog.Load(known.name);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Dataset& dataset = **loaded;
  EXPECT_EQ(dataset.classes, 10);
  EXPECT_EQ(dataset.train.count, 60000);
  EXPECT_EQ(dataset.test.count, 10000);
  EXPECT_EQ(dataset.train.shape, (ImageShape{1, 28, 28}));
  std::vector<int> class_counts(10);
  for (const uint8_t label : dataset.train.labels) ++class_counts[label];
  EXPECT_EQ(class_counts, known.class_counts);
  int64_t sum = 0, squares = 0;
  for (const uint8_t pixel : dataset.train.images) {
    sum += pixel;
    squares += int64_t{pixel} * pixel;
  }
  const double pixels = 60000 * 784;
  const double mean = static_cast<double>(sum) / pixels / 255;
  EXPECT_NEAR(mean, known.mean, 5e-5);
  EXPECT_NEAR(std::sqrt(static_cast<double>(squares) / pixels / (255 * 255) - mean * mean), known.deviation, 5e-5);
}

INSTANTIATE_TEST_SUITE_P(Sets, RealDataTest,
                         ::testing::Values(Known{"mnist",
                                                 LENET_TEST_DATA "/../../build/data",
                                                 0.1307,
                                                 0.3081,
                                                 {5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949}},
                                           Known{"fashion-mnist", "/usr/share/datasets", 0.2860, 0.3530,
                                                 std::vector<int>(10, 6000)}),
                         [](const auto& info) { return info.index == 0 ? "Mnist" : "FashionMnist"; });

}  // namespace
}  // namespace lenet
