#include "server/rpc/executor.h"

#include <pthread.h>

#include <utility>

#include "server/rpc/guarded.h"

namespace lenet {

Executor::Executor(int threads, size_t max_waiting) : max_waiting_(max_waiting) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

Executor::~Executor() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.SignalAll();
  for (std::thread& thread : threads_) thread.join();
}

bool Executor::Run(std::function<void()> task) {
  {
    MutexLock lock(&mutex_);
    if (tasks_.size() >= max_waiting_) return false;
    tasks_.push_back(std::move(task));
  }
  changed_.Signal();
  return true;
}

bool Executor::Responds(std::chrono::steady_clock::time_point deadline) {
  const uint64_t before = heartbeat_.beats();
  {
    MutexLock lock(&mutex_);
    if (!asked_) {
      tasks_.push_back([this] {
        MutexLock task_lock(&mutex_);
        asked_ = false;
      });
      asked_ = true;
    }
  }
  changed_.Signal();
  return heartbeat_.AwaitMore(before, deadline);
}

void Executor::Work() {
  pthread_setname_np(pthread_self(), "executor");
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(&mutex_);
      while (tasks_.empty() && !stop_) changed_.Wait(&mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    (void)Guarded([&task] {
      task();
      return absl::OkStatus();
    });
    heartbeat_.Beat();
  }
}

}  // namespace lenet
