// A store that can be told to refuse, or to let something happen in between.
#ifndef LENET_TESTS_SUPPORT_FAILING_STORE_H_
#define LENET_TESTS_SUPPORT_FAILING_STORE_H_

#include <atomic>
#include <functional>
#include <map>
#include <new>
#include <thread>
#include <utility>

#include "server/store/memory_store.h"
#include "trainer/base/mutex.h"

namespace lenet {

class FailingStore : public MemoryStore {
 public:
  using MemoryStore::MemoryStore;
  // What the change is refused with; OK: it is not.
  using Judge = std::function<absl::Status(const StateUpdate& update)>;

  std::atomic<bool> full{false};           // takes no records but those of a change of state
  std::atomic<bool> down{false};           // answers nothing of one job
  std::atomic<bool> count_fails{false};    // CountJobs fails
  std::atomic<bool> throws{false};         // FindByRequestId, ListJobs and ListChanges throw std::bad_alloc
  mutable std::atomic<int> lost_reads{0};  // calls of GetJob while it was down

  void JudgeChanges(Judge judge) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    judge_ = std::move(judge);
  }

  // Called once, before the next GetJob, FindByRequestId, ListJobs or ListChanges of this thread gives what it
  // has read.
  void AfterRead(std::function<void()> action) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    after_read_ = std::move(action);
    reader_ = std::this_thread::get_id();
  }

  absl::StatusOr<v1::Job> GetJob(absl::string_view id) const override {
    if (down) {
      ++lost_reads;
      return absl::UnavailableError("store away");
    }
    absl::StatusOr<v1::Job> job = MemoryStore::GetJob(id);
    HaveRead();
    return job;
  }

  absl::StatusOr<v1::Job> FindByRequestId(absl::string_view request_id) const override {
    if (throws) throw std::bad_alloc();
    absl::StatusOr<v1::Job> job = MemoryStore::FindByRequestId(request_id);
    HaveRead();
    return job;
  }

  absl::StatusOr<JobPage> ListJobs(const JobQuery& query) const override {
    if (throws) throw std::bad_alloc();
    absl::StatusOr<JobPage> page = MemoryStore::ListJobs(query);
    HaveRead();
    return page;
  }

  absl::StatusOr<std::map<v1::JobState, int64_t>> CountJobs() const override {
    if (count_fails) return absl::UnavailableError("store away");
    return MemoryStore::CountJobs();
  }

  absl::StatusOr<ChangePage> ListChanges(uint64_t after, int limit, int64_t max_bytes) const override {
    if (throws) throw std::bad_alloc();
    absl::StatusOr<ChangePage> page = MemoryStore::ListChanges(after, limit, max_bytes);
    HaveRead();
    return page;
  }

  absl::StatusOr<v1::Job> ChangeState(absl::string_view id, StateUpdate update) override {
    if (down) return absl::UnavailableError("store away");
    Judge judge;
    {
      MutexLock lock(&mutex_);
      judge = judge_;
    }
    const absl::Status verdict = judge ? judge(update) : absl::OkStatus();
    if (!verdict.ok()) return verdict;
    return MemoryStore::ChangeState(id, std::move(update));
  }

  absl::StatusOr<v1::Job> UpdateJob(absl::string_view id, const JobEdit& edit) override {
    if (down) return absl::UnavailableError("store away");
    return MemoryStore::UpdateJob(id, edit);
  }

  absl::StatusOr<uint64_t> AppendRecords(absl::string_view id, std::span<v1::MetricRecord> records) override {
    if (down) return absl::UnavailableError("store away");
    if (full) return absl::ResourceExhaustedError("disk full");
    return MemoryStore::AppendRecords(id, records);
  }

 private:
  void HaveRead() const ABSL_LOCKS_EXCLUDED(mutex_) {
    std::function<void()> action;
    {
      MutexLock lock(&mutex_);
      if (reader_ != std::this_thread::get_id()) return;
      action = std::exchange(after_read_, nullptr);
    }
    if (action) action();
  }

  mutable Mutex mutex_;
  Judge judge_ ABSL_GUARDED_BY(mutex_);
  mutable std::function<void()> after_read_ ABSL_GUARDED_BY(mutex_);
  std::thread::id reader_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_FAILING_STORE_H_
