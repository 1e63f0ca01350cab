// The measure by which tests compare numbers.
#ifndef LENET_TESTS_SUPPORT_RELATIVE_ERROR_H_
#define LENET_TESTS_SUPPORT_RELATIVE_ERROR_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace lenet {

// The 2-norm of `actual` - `expected` by that of `expected`, which counts as `least_norm` if it is smaller; infinity
// for ranges of different sizes.
template <typename Actual, typename Expected>
double RelativeError(const Actual& actual, const Expected& expected, double least_norm = 0) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double wanted = expected[i];
    difference += (actual[i] - wanted) * (actual[i] - wanted);
    norm += wanted * wanted;
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), least_norm);
}

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_RELATIVE_ERROR_H_
