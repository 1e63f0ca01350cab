// Update rules, with PyTorch's formulas (torch.optim.SGD, Adam, AdamW).
#ifndef LENET_TRAINER_OPTIM_OPTIMIZER_H_
#define LENET_TRAINER_OPTIM_OPTIMIZER_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trainer/optim/update_scalars.h"

namespace lenet {

enum class OptimizerKind { kSgd, kAdam, kAdamW };

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kSgd;
  double momentum = 0;    // SGD; in [0, 1)
  bool nesterov = false;  // SGD; needs momentum > 0
  double beta1 = 0.9;     // Adam, AdamW; in [0, 1)
  double beta2 = 0.999;
  double epsilon = 1e-8;    // Adam, AdamW; in [1e-37, 1], so that it is a normal float
  double weight_decay = 0;  // >= 0; SGD, Adam: added to the gradient; AdamW: decoupled
};

// INVALID_ARGUMENT names the field, the value and the bound.
absl::Status ValidateOptimizer(const OptimizerSpec& spec);

// Flat buffers of state: 1 for SGD with momentum (the velocity), 2 for Adam and AdamW (first, second moment), else 0.
int StateSlots(const OptimizerSpec& spec);

// The name of a slot, for checkpoints: "momentum", "exp_avg", "exp_avg_sq".
absl::string_view StateSlotName(const OptimizerSpec& spec, int slot);

// `step` counts from 0; Adam's t is step + 1.
UpdateScalars ScalarsAt(const OptimizerSpec& spec, int64_t step, float learning_rate);

// One update in place over buffers of equal size n: parameters, gradient, state [StateSlots * n]. Gradients are first
// multiplied by `gradient_scale` (see ClipScale). A gap of zeros stays zero.
void ApplyUpdate(const OptimizerSpec& spec, const UpdateScalars& scalars, float gradient_scale,
                 std::span<float> parameters, std::span<const float> gradient, std::span<float> state);

// Factor that brings a gradient of this 2-norm down to `clip_norm`, as torch.nn.utils.clip_grad_norm_:
// min(1, clip_norm / (norm + 1e-6)); 1 if clip_norm is 0 (off).
float ClipScale(float clip_norm, float norm);

}  // namespace lenet

#endif  // LENET_TRAINER_OPTIM_OPTIMIZER_H_
