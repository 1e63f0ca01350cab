#include "trainer/nn/init.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "trainer/base/random.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

struct Range {
  double low = 0;
  double high = 0;
};

Range RangeOf(const InitSpec& init, const Parameter& parameter) {
  const double fan_in = static_cast<double>(parameter.fan_in);
  const double fan_out = static_cast<double>(parameter.fan_out);
  switch (init.kind) {
    case InitKind::kKaimingUniform: {
      const double bound = 1 / std::sqrt(fan_in);
      return {-bound, bound};
    }
    case InitKind::kXavierUniform: {
      if (parameter.is_bias) return {0, 0};
      const double bound = std::sqrt(6 / (fan_in + fan_out));
      return {-bound, bound};
    }
    case InitKind::kUniform:
      return {init.low, init.high};
  }
  return {0, 0};
}

}  // namespace

absl::Status ValidateInit(const InitSpec& init) {
  if (init.kind != InitKind::kUniform) return absl::OkStatus();
  if (!std::isfinite(init.low)) return BadValue("init.low", init.low, "finite");
  if (!std::isfinite(init.high) || !(init.low < init.high)) {
    return BadValue("init.high", init.high, absl::StrCat("finite and above init.low = ", init.low));
  }
  return absl::OkStatus();
}

void Initialize(const Net& net, const InitSpec& init, uint64_t seed, std::span<float> flat) {
  std::fill(flat.begin(), flat.end(), 0.0f);
  uint64_t stream = kInitStream;
  for (const Parameter& parameter : net.parameters()) {
    const Range range = RangeOf(init, parameter);
    const double width = range.high - range.low;
    const std::span<float> values =
        flat.subspan(static_cast<size_t>(parameter.offset), static_cast<size_t>(parameter.size));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(range.low + width * double{UniformFloat(seed, stream, i)});
    }
    ++stream;
  }
}

}  // namespace lenet
