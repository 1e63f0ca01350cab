#include "server/progress_watch.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/log.h"

namespace lenet {
namespace {

// A question that can be cut short is asked anew that often, so that the end does not wait long for it.
constexpr std::chrono::milliseconds kQuestion(500);

bool Moves(const ProgressWatch::Part& part) {
  try {
    return part.moves(ProgressWatch::Clock::now() + kQuestion);
  } catch (const std::exception& error) {
    Log(LogLevel::kWarning, absl::StrCat("watchdog: ", part.name, ": exception: ", error.what()));
    return true;
  }
}

}  // namespace

ProgressWatch::ProgressWatch(std::vector<Part> parts, std::chrono::milliseconds pause)
    : parts_(std::move(parts)), pause_(pause), thread_([this] { Run(); }) {}

ProgressWatch::~ProgressWatch() {
  Stop();
  thread_.join();
}

void ProgressWatch::Stop() {
  MutexLock lock(&mutex_);
  stop_ = true;
  changed_.SignalAll();
}

std::optional<ProgressWatch::Standstill> ProgressWatch::Find(std::chrono::milliseconds patience) const {
  MutexLock lock(&mutex_);
  if (asked_ == nullptr || stop_) return std::nullopt;
  const Clock::duration since = Clock::now() - asked_at_;
  if (since <= patience) return std::nullopt;
  return Standstill{.part = asked_->name, .duration = std::chrono::duration_cast<std::chrono::milliseconds>(since)};
}

bool ProgressWatch::Ask(const Part& part) {
  {
    MutexLock lock(&mutex_);
    asked_ = &part;
    asked_at_ = Clock::now();
  }
  bool moved = false;
  while (!moved) {
    moved = Moves(part);
    MutexLock lock(&mutex_);
    if (stop_) return false;
  }
  return true;
}

void ProgressWatch::Run() {
  pthread_setname_np(pthread_self(), "progress");
  while (std::all_of(parts_.begin(), parts_.end(), [this](const Part& part) { return Ask(part); })) {
    MutexLock lock(&mutex_);
    asked_ = nullptr;
    const Clock::time_point next = Clock::now() + pause_;
    while (!stop_ && changed_.WaitUntil(&mutex_, next)) {
    }
    if (stop_) return;
  }
}

}  // namespace lenet
