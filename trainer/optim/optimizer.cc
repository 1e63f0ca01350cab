#include "trainer/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/status.h"

namespace lenet {
namespace {

bool InHalfOpenUnit(double x) { return x >= 0 && x < 1; }

// The loops below take their rule's switches as template arguments: one branch-free body each, which the compiler
// vectorises. Every multiplication and addition rounds by itself (this file is compiled without contraction), so the
// results do not depend on the vector width.

template <bool kMomentum, bool kNesterov>
void SgdLoop(const UpdateScalars& s, float scale, int64_t n, float* __restrict p, const float* __restrict g,
             float* __restrict velocity) {
  const float lr = s.learning_rate;
  const float momentum = s.momentum;
  const float decay = s.weight_decay;
  for (int64_t i = 0; i < n; ++i) {
    float d = g[i] * scale + decay * p[i];
    if constexpr (kMomentum) {
      const float v = momentum * velocity[i] + d;
      velocity[i] = v;
      d = kNesterov ? d + momentum * v : v;
    }
    p[i] -= lr * d;
  }
}

template <bool kDecoupled>
void AdamLoop(const UpdateScalars& s, float scale, int64_t n, float* __restrict p, const float* __restrict g,
              float* __restrict average, float* __restrict square) {
  for (int64_t i = 0; i < n; ++i) {
    float d = g[i] * scale;
    float value = p[i];
    if constexpr (kDecoupled) {
      value *= s.decay;
    } else {
      d += s.weight_decay * value;
    }
    const float m = s.beta1 * average[i] + s.one_minus_beta1 * d;
    const float v = s.beta2 * square[i] + s.one_minus_beta2 * d * d;
    average[i] = m;
    square[i] = v;
    p[i] = value - s.step_size * (m / (std::sqrt(v) / s.sqrt_correction2 + s.epsilon));
  }
}

}  // namespace

absl::Status ValidateOptimizer(const OptimizerSpec& spec) {
  if (!(spec.weight_decay >= 0) || !std::isfinite(spec.weight_decay)) {
    return BadValue("optimizer.weight_decay", spec.weight_decay, "at least 0 and finite");
  }
  if (spec.kind == OptimizerKind::kSgd) {
    if (!InHalfOpenUnit(spec.momentum)) return BadValue("optimizer.momentum", spec.momentum, "in [0, 1)");
    if (spec.nesterov && spec.momentum == 0) {
      return BadValue("optimizer.momentum", spec.momentum, "above 0 with nesterov");
    }
    return absl::OkStatus();
  }
  if (!InHalfOpenUnit(spec.beta1)) return BadValue("optimizer.beta1", spec.beta1, "in [0, 1)");
  if (!InHalfOpenUnit(spec.beta2)) return BadValue("optimizer.beta2", spec.beta2, "in [0, 1)");
  // Below, a float would round it to a subnormal or to 0.
  constexpr double kLeastEpsilon = 1e-37;
  if (!(spec.epsilon >= kLeastEpsilon && spec.epsilon <= 1)) {
    return BadValue("optimizer.epsilon", spec.epsilon, "in [1e-37, 1]");
  }
  return absl::OkStatus();
}

int StateSlots(const OptimizerSpec& spec) {
  if (spec.kind == OptimizerKind::kSgd) return spec.momentum > 0 ? 1 : 0;
  return 2;
}

absl::string_view StateSlotName(const OptimizerSpec& spec, int slot) {
  if (spec.kind == OptimizerKind::kSgd) return "momentum";
  return slot == 0 ? "exp_avg" : "exp_avg_sq";
}

UpdateScalars ScalarsAt(const OptimizerSpec& spec, int64_t step, float learning_rate) {
  UpdateScalars scalars;
  scalars.learning_rate = learning_rate;
  scalars.momentum = static_cast<float>(spec.momentum);
  scalars.weight_decay = static_cast<float>(spec.weight_decay);
  if (spec.kind == OptimizerKind::kSgd) return scalars;
  const double t = static_cast<double>(step) + 1;
  scalars.beta1 = static_cast<float>(spec.beta1);
  scalars.beta2 = static_cast<float>(spec.beta2);
  scalars.one_minus_beta1 = static_cast<float>(1 - spec.beta1);
  scalars.one_minus_beta2 = static_cast<float>(1 - spec.beta2);
  scalars.epsilon = static_cast<float>(spec.epsilon);
  scalars.step_size = static_cast<float>(learning_rate / (1 - std::pow(spec.beta1, t)));
  scalars.sqrt_correction2 = static_cast<float>(std::sqrt(1 - std::pow(spec.beta2, t)));
  if (spec.kind == OptimizerKind::kAdamW) {
    scalars.decay = static_cast<float>(1 - static_cast<double>(learning_rate) * spec.weight_decay);
  }
  return scalars;
}

void ApplyUpdate(const OptimizerSpec& spec, const UpdateScalars& scalars, float gradient_scale,
                 std::span<float> parameters, std::span<const float> gradient, std::span<float> state) {
  const int64_t n = static_cast<int64_t>(parameters.size());
  float* p = parameters.data();
  const float* g = gradient.data();
  float* slot0 = state.data();
  switch (spec.kind) {
    case OptimizerKind::kSgd:
      if (spec.momentum == 0) return SgdLoop<false, false>(scalars, gradient_scale, n, p, g, nullptr);
      if (spec.nesterov) return SgdLoop<true, true>(scalars, gradient_scale, n, p, g, slot0);
      return SgdLoop<true, false>(scalars, gradient_scale, n, p, g, slot0);
    case OptimizerKind::kAdam:
      return AdamLoop<false>(scalars, gradient_scale, n, p, g, slot0, slot0 + n);
    case OptimizerKind::kAdamW:
      return AdamLoop<true>(scalars, gradient_scale, n, p, g, slot0, slot0 + n);
  }
}

float ClipScale(float clip_norm, float norm) {
  if (clip_norm == 0) return 1;
  // Not std::min: a norm that is NaN makes the factor NaN, as in PyTorch, and does not pass unseen.
  const float factor = clip_norm / (norm + 1e-6f);
  return factor > 1 ? 1 : factor;
}

}  // namespace lenet
