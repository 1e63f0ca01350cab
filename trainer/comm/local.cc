#include "trainer/comm/local.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/base/cores.h"
#include "trainer/base/mutex.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr int kSpins = 4000;             // 50 to 150 us of pauses: more than ranks on their own cores drift in a step
constexpr int64_t kSliceAlignment = 16;  // floats; no cache line is written by two ranks
constexpr int64_t kReduceBlock = 512;    // floats; sums of a block stay in the first-level cache

void CpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A barrier over `size` threads. Generation, arrivals and the aborted flag share one word, so that a generation is
// either completed for all or aborted for all.
class Gate {
 public:
  Gate(int size, int spins) : size_(static_cast<uint64_t>(size)), spins_(spins) {}

  // Waits for the other threads; false if the gate was aborted before all had arrived.
  bool Pass() {
    uint64_t word = word_.load(std::memory_order_acquire);
    uint64_t next = 0;
    do {
      if ((word & kAborted) != 0) return false;
      next = Arrivals(word) + 1 == size_ ? (word / kGeneration + 1) * kGeneration : word + kArrival;
    } while (!word_.compare_exchange_weak(word, next, std::memory_order_seq_cst, std::memory_order_acquire));

    const uint64_t generation = word / kGeneration;
    if (next / kGeneration != generation) {
      WakeSleepers();
      return true;
    }
    word = next;
    for (int i = 0; i < spins_ && Pending(word, generation); ++i) {
      CpuPause();
      word = word_.load(std::memory_order_acquire);
    }
    if (Pending(word, generation)) word = Sleep(generation);
    return word / kGeneration != generation;
  }

  void Abort() {
    word_.fetch_or(kAborted, std::memory_order_seq_cst);
    WakeSleepers();
  }
  bool aborted() const { return (word_.load(std::memory_order_acquire) & kAborted) != 0; }

 private:
  static constexpr uint64_t kAborted = 1;
  static constexpr uint64_t kArrival = 2;
  static constexpr uint64_t kGeneration = uint64_t{1} << 32;

  static uint64_t Arrivals(uint64_t word) { return word % kGeneration / kArrival; }
  static bool Pending(uint64_t word, uint64_t generation) {
    return word / kGeneration == generation && (word & kAborted) == 0;
  }

  // The count of sleepers rises before the word is read again, and whoever changes the word reads the count after it:
  // one of the two sees the other.
  uint64_t Sleep(uint64_t generation) {
    MutexLock lock(&mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    uint64_t word = word_.load(std::memory_order_seq_cst);
    while (Pending(word, generation)) {
      wake_.Wait(&mutex_);
      word = word_.load(std::memory_order_seq_cst);
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    return word;
  }

  void WakeSleepers() {
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    MutexLock lock(&mutex_);
    wake_.SignalAll();
  }

  const uint64_t size_;
  const int spins_;
  alignas(64) std::atomic<uint64_t> word_{0};
  std::atomic<int> sleepers_{0};
  Mutex mutex_;
  CondVar wake_;
};

}  // namespace

class LocalGroup::State {
 public:
  explicit State(int size);

  int size() const { return size_; }
  Communicator* end(int rank) { return ends_[rank].get(); }
  bool aborted() const { return enter_.aborted(); }

  void Abort(absl::string_view reason) {
    MutexLock lock(&mutex_);
    if (enter_.aborted()) return;
    reason_ = std::string(reason);
    enter_.Abort();
  }

  absl::Status Barrier() { return enter_.Pass() ? absl::OkStatus() : AbortedStatus(); }

  // Runs `body` on every rank between two barriers, within which each may touch the data of all. Once every rank has
  // come, an abort no longer parts them: none may leave, and free its data, while another works on it.
  template <typename Body>
  absl::Status Collective(int rank, float* data, int64_t count, Body body) {
    slots_[rank] = {data, count};
    if (!enter_.Pass()) return AbortedStatus();
    absl::Status status = CheckCounts();
    if (status.ok()) body();
    leave_.Pass();
    return status;
  }

  // The sums of this rank's slice of the elements, to all ranks.
  void ReduceSlice(int rank, int64_t count) {
    if (size_ == 1) return;
    const int64_t slice = (count / size_ / kSliceAlignment + 1) * kSliceAlignment;
    const int64_t end = std::min(count, (rank + 1) * slice);
    alignas(64) float sum[kReduceBlock];
    for (int64_t begin = std::min(count, rank * slice); begin < end; begin += kReduceBlock) {
      const int64_t n = std::min(kReduceBlock, end - begin);
      std::copy_n(slots_[0].data + begin, n, sum);
      for (int other = 1; other < size_; ++other) {
        const float* addend = slots_[other].data + begin;
        for (int64_t i = 0; i < n; ++i) sum[i] += addend[i];
      }
      for (const Slot& slot : slots_) std::copy_n(sum, n, slot.data + begin);
    }
  }

  const float* root_data() const { return slots_[0].data; }

 private:
  struct alignas(64) Slot {
    float* data = nullptr;
    int64_t count = 0;
  };

  absl::Status AbortedStatus() {
    MutexLock lock(&mutex_);
    return absl::AbortedError(reason_);
  }

  // The same answer on every rank.
  absl::Status CheckCounts() const {
    for (int rank = 1; rank < size_; ++rank) {
      if (slots_[rank].count != slots_[0].count) {
        return absl::InvalidArgumentError(absl::StrCat("collective over ", slots_[0].count, " values on rank 0 but ",
                                                       slots_[rank].count, " on rank ", rank));
      }
    }
    return absl::OkStatus();
  }

  const int size_;
  const int spins_;
  std::vector<Slot> slots_;  // each written by its rank before enter_, read by all between enter_ and leave_
  std::vector<std::unique_ptr<Communicator>> ends_;
  Gate enter_{size_, spins_};
  Gate leave_{size_, spins_};
  Mutex mutex_;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
};

class LocalGroup::End final : public Communicator {
 public:
  End(State* state, int rank) : state_(state), rank_(rank) {}

  absl::Status AllReduceSum(float* data, int64_t count, void* /*stream*/) override {
    return state_->Collective(rank_, data, count, [&] { state_->ReduceSlice(rank_, count); });
  }

  absl::Status Broadcast(float* data, int64_t count, void* /*stream*/) override {
    return state_->Collective(rank_, data, count, [&] {
      if (rank_ != 0) std::copy_n(state_->root_data(), count, data);
    });
  }

 private:
  State* const state_;
  const int rank_;
};

LocalGroup::State::State(int size) : size_(size), spins_(size <= UsableCores() ? kSpins : 0), slots_(size) {
  for (int rank = 0; rank < size; ++rank) ends_.push_back(std::make_unique<End>(this, rank));
}

LocalGroup::LocalGroup(int size) : state_(std::make_unique<State>(size)) {}
LocalGroup::~LocalGroup() = default;

int LocalGroup::size() const { return state_->size(); }
Communicator* LocalGroup::communicator(int rank) { return state_->end(rank); }
void LocalGroup::Abort(absl::string_view reason) { state_->Abort(reason); }
bool LocalGroup::aborted() const { return state_->aborted(); }
absl::Status LocalGroup::Barrier() { return state_->Barrier(); }

}  // namespace lenet
