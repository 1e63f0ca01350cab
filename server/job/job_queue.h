// The jobs that wait for devices, and which of them goes next.
#ifndef LENET_SERVER_JOB_JOB_QUEUE_H_
#define LENET_SERVER_JOB_JOB_QUEUE_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/job/device_pool.h"

namespace lenet {

// What the queue has to know of a job.
struct QueueEntry {
  std::string id;
  int priority = 0;
  DeviceRequest devices;
  std::chrono::steady_clock::time_point queued_at;  // it does not count for the order
};

// A job that holds devices.
struct Holder {
  QueueEntry entry;
  bool preemptible = false;
  bool yielding = false;  // it has been asked to give them up
};

// Jobs in the order in which they are to start: those of the highest priority first, among equals the one accepted
// first. Not safe from several threads.
//
// The head of the queue is the first job that could run on the devices that are sound. One behind it starts before it
// (back-fill) only if the head cannot want its devices: if the head names devices, and the other needs none of those. A
// head that takes any devices wants whatever becomes free.
class JobQueue {
 public:
  struct Start {
    std::string id;
    std::vector<int> device_ids;  // by rank; held by the job from now on
    std::chrono::steady_clock::time_point queued_at;
  };

  void Push(QueueEntry entry);
  bool Remove(absl::string_view id);
  size_t size() const { return entries_.size(); }

  // Takes out the next job that can start now, if any.
  std::optional<Start> Pop(DevicePool* pool);

  // The ids of preemptible jobs of a lower priority by whose end the head could start: those of the lowest priority
  // first, among equals the one accepted last. Those that yield already count as gone. Empty if the head can start, or
  // could not even then.
  std::vector<std::string> Victims(const DevicePool& pool, const std::vector<Holder>& running) const;

  // From 1; 0 if the job is not in the queue.
  int Position(absl::string_view id) const;
  // What the job waits for, in words.
  std::string WaitsFor(absl::string_view id, const DevicePool& pool) const;

 private:
  const QueueEntry* Head(const DevicePool& pool) const;

  std::vector<QueueEntry> entries_;  // in their order
};

}  // namespace lenet

#endif  // LENET_SERVER_JOB_JOB_QUEUE_H_
