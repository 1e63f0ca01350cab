#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trainer/base/status.h"

namespace lenet {
namespace {

// From `from` (at fraction 0) to `to` (at 1) along half a cosine.
double CosineBetween(double from, double to, double fraction) {
  return to + (from - to) / 2 * (std::cos(std::numbers::pi * fraction) + 1);
}

double OneCycleRate(const ScheduleSpec& spec, double peak, double step, double total_steps) {
  const double initial = peak / spec.initial_divisor;
  const double rise_end = spec.peak_fraction * total_steps - 1;
  if (step <= rise_end) return rise_end > 0 ? CosineBetween(initial, peak, step / rise_end) : peak;
  return CosineBetween(peak, initial / spec.final_divisor, (step - rise_end) / (total_steps - 1 - rise_end));
}

}  // namespace

absl::Status ValidateSchedule(const ScheduleSpec& spec) {
  if (!(spec.warmup_fraction >= 0 && spec.warmup_fraction < 1)) {
    return BadValue("schedule.warmup_fraction", spec.warmup_fraction, "in [0, 1)");
  }
  switch (spec.kind) {
    case ScheduleKind::kConstant:
      break;
    case ScheduleKind::kStep:
      if (!(spec.gamma > 0 && spec.gamma <= 1)) return BadValue("schedule.gamma", spec.gamma, "in (0, 1]");
      if (spec.step_epochs < 1) return BadValue("schedule.step_epochs", spec.step_epochs, "at least 1");
      break;
    case ScheduleKind::kCosine:
    case ScheduleKind::kLinear:
      if (!(spec.final_fraction >= 0 && spec.final_fraction <= 1)) {
        return BadValue("schedule.final_fraction", spec.final_fraction, "in [0, 1]");
      }
      break;
    case ScheduleKind::kOneCycle:
      if (spec.warmup_fraction != 0) {
        return BadValue("schedule.warmup_fraction", spec.warmup_fraction, "0 with one-cycle, which has its own");
      }
      if (!(spec.peak_fraction > 0 && spec.peak_fraction < 1)) {
        return BadValue("schedule.peak_fraction", spec.peak_fraction, "in (0, 1)");
      }
      if (!(spec.initial_divisor >= 1) || !std::isfinite(spec.initial_divisor)) {
        return BadValue("schedule.initial_divisor", spec.initial_divisor, "at least 1 and finite");
      }
      if (!(spec.final_divisor >= 1) || !std::isfinite(spec.final_divisor)) {
        return BadValue("schedule.final_divisor", spec.final_divisor, "at least 1 and finite");
      }
      break;
  }
  return absl::OkStatus();
}

int64_t WarmupSteps(const ScheduleSpec& spec, int64_t total_steps) {
  const int64_t rounded = std::llround(spec.warmup_fraction * static_cast<double>(total_steps));
  return std::clamp<int64_t>(rounded, 0, std::max<int64_t>(total_steps - 1, 0));
}

double LearningRateAt(const ScheduleSpec& spec, double base_rate, int64_t step, int64_t total_steps,
                      int64_t steps_per_epoch) {
  const int64_t warmup = WarmupSteps(spec, total_steps);
  if (step < warmup) return base_rate * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  const int64_t left = step - warmup;
  const double t = static_cast<double>(left);
  const double total = static_cast<double>(total_steps - warmup);
  switch (spec.kind) {
    case ScheduleKind::kConstant:
      return base_rate;
    case ScheduleKind::kStep: {
      const int64_t drops = left / steps_per_epoch / spec.step_epochs;
      return base_rate * std::pow(spec.gamma, static_cast<double>(drops));
    }
    case ScheduleKind::kCosine:
      return CosineBetween(base_rate, base_rate * spec.final_fraction, t / total);
    case ScheduleKind::kLinear:
      return base_rate * (1 + (spec.final_fraction - 1) * (t / total));
    case ScheduleKind::kOneCycle:
      return OneCycleRate(spec, base_rate, t, total);
  }
  return base_rate;
}

}  // namespace lenet
