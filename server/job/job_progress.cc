#include "server/job/job_progress.h"

#include <algorithm>

namespace lenet {
namespace {

constexpr std::chrono::duration<double> kStretch(1);

}  // namespace

void JobProgress::Restore(const v1::Progress& progress) {
  MutexLock lock(&mutex_);
  progress_ = progress;
  for (Rank& rank : ranks_) rank = {.step = progress.step(), .loss = static_cast<float>(progress.loss())};
}

void JobProgress::MoveTo(int64_t step) {
  MutexLock lock(&mutex_);
  for (Rank& rank : ranks_) rank.step = step;
}

void JobProgress::Begin(int64_t steps_per_epoch, Clock::time_point now) {
  MutexLock lock(&mutex_);
  steps_per_epoch_ = steps_per_epoch;
  since_ = now;
  since_step_ = StepOfAll();
  first_stretch_ = true;
}

void JobProgress::AddSteps(int rank, int64_t step, float loss, Clock::time_point now) {
  MutexLock lock(&mutex_);
  ranks_[static_cast<size_t>(rank)] = {.step = step, .loss = loss, .reported = true};
  const int64_t done = StepOfAll();
  const std::chrono::duration<double> passed = now - since_;
  if (done == since_step_ || passed.count() <= 0) return;
  if (passed >= kStretch || first_stretch_) {
    progress_.set_images_per_second(static_cast<double>(done - since_step_) * global_batch_ / passed.count());
  }
  if (passed >= kStretch) {
    since_ = now;
    since_step_ = done;
    first_stretch_ = false;
  }
}

void JobProgress::AddEvaluation(const Evaluation& evaluation) {
  MutexLock lock(&mutex_);
  progress_.set_accuracy(evaluation.accuracy());
  progress_.set_evaluated(true);
}

v1::Progress JobProgress::Get() const {
  MutexLock lock(&mutex_);
  v1::Progress progress = progress_;
  progress.set_step(StepOfAll());
  progress.set_epoch(progress.step() / steps_per_epoch_);
  double sum = 0;
  for (const Rank& rank : ranks_) sum += double{rank.loss};
  progress.set_loss(sum / static_cast<double>(ranks_.size()));
  return progress;
}

int64_t JobProgress::StepOfAll() const {
  return std::min_element(ranks_.begin(), ranks_.end(), [](const Rank& a, const Rank& b) { return a.step < b.step; })
      ->step;
}

}  // namespace lenet
