#include "server/job/device_health.h"

#include <pthread.h>

#include <span>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "trainer/base/log.h"

namespace lenet {
namespace {

// Not what a spec, a data set or a disk can bring about.
bool MayBeTheDevices(const v1::Failure& failure) {
  static constexpr absl::string_view kPhases[] = {"init", "broadcast", "warm-up", "step", "evaluation"};
  static constexpr absl::string_view kOthers[] = {"FAILED_PRECONDITION", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"};
  return absl::c_linear_search(kPhases, failure.phase()) && !absl::c_linear_search(kOthers, failure.code());
}

}  // namespace

DeviceHealth::DeviceHealth(const Backend* backend, GroupCache* groups, std::chrono::milliseconds interval,
                           const WarmUpTimeouts& timeouts, Hooks hooks)
    : backend_(backend),
      groups_(groups),
      interval_(interval),
      hooks_(std::move(hooks)),
      timeouts_{.collective = timeouts.collective, .join = timeouts.join, .stuck = hooks_.unusable},
      thread_([this] { Run(); }) {}

DeviceHealth::~DeviceHealth() {
  Stop();
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

absl::Status DeviceHealth::WarmUp() {
  std::vector<int> ids;
  for (const DeviceInfo& device : backend_->devices()) ids.push_back(device.id);
  const absl::Status all = lenet::WarmUp(groups_, ids, &stop_request_, timeouts_);
  if (all.ok() || absl::IsCancelled(all) || ids.size() == 1) return all;
  Log(LogLevel::kError, absl::StrCat("the devices together failed, trying each: ", all.ToString()));
  std::vector<int> sound;
  for (int id : ids) {
    const absl::Status alone = Try(id);
    if (absl::IsCancelled(alone)) return alone;
    if (alone.ok()) sound.push_back(id);
  }
  if (sound.empty() || sound.size() == ids.size()) return all;
  return lenet::WarmUp(groups_, sound, &stop_request_, timeouts_);
}

void DeviceHealth::CheckAfter(const v1::Failure& failure, const std::vector<int>& device_ids) {
  if (!MayBeTheDevices(failure)) return;
  for (int id : std::set<int>(device_ids.begin(), device_ids.end())) {
    const absl::Status status = Try(id);
    if (absl::IsCancelled(status)) return;
    if (!status.ok() && backend_->failures_last() && hooks_.unusable) {
      hooks_.unusable(absl::StrCat("device ", id, " failed: ", status.ToString()));
    }
  }
}

absl::Status DeviceHealth::Try(int device) {
  const absl::Status status = lenet::WarmUp(groups_, std::span(&device, 1), &stop_request_, timeouts_);
  if (status.ok() || absl::IsCancelled(status)) return status;
  Log(LogLevel::kError, absl::StrCat("device ", device, " gets no jobs until it works again: ", status.ToString()));
  hooks_.excluded(device, status);
  {
    MutexLock lock(&mutex_);
    failed_.insert(device);
  }
  changed_.SignalAll();
  return status;
}

void DeviceHealth::Run() {
  pthread_setname_np(pthread_self(), "health");
  for (;;) {
    std::set<int> failed;
    {
      MutexLock lock(&mutex_);
      while (failed_.empty() && !stop_) changed_.Wait(&mutex_);
      const auto next = std::chrono::steady_clock::now() + interval_;
      while (!stop_ && changed_.WaitUntil(&mutex_, next)) {
      }
      if (stop_) return;
      failed = failed_;
    }
    for (int device : failed) {
      if (!lenet::WarmUp(groups_, std::span(&device, 1), &stop_request_, timeouts_).ok()) continue;
      {
        MutexLock lock(&mutex_);
        failed_.erase(device);
      }
      Log(LogLevel::kInfo, absl::StrCat("device ", device, " works again"));
      hooks_.restored(device);
    }
  }
}

}  // namespace lenet
