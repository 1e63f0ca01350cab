#include "server/rpc/stream_hub.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/guarded.h"

namespace lenet {
namespace {

// Whether it was there.
bool Erase(std::vector<std::shared_ptr<HubStream>>* streams, const HubStream* stream) {
  return std::erase_if(*streams, [stream](const std::shared_ptr<HubStream>& held) { return held.get() == stream; }) > 0;
}

}  // namespace

StreamHub::StreamHub(size_t max_streams, std::chrono::milliseconds interval)
    : interval_(interval), max_streams_(max_streams), thread_([this] { Run(); }) {}

StreamHub::~StreamHub() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.SignalAll();
  thread_.join();
}

void StreamHub::SetLimits(size_t max_streams, size_t max_streams_per_client) {
  MutexLock lock(&mutex_);
  max_streams_ = max_streams;
  max_streams_per_client_ = max_streams_per_client;
}

absl::Status StreamHub::CheckLimits(const std::string& client) const {
  if (streams_.size() >= max_streams_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(streams_.size(), " streams are open; the limit is ", max_streams_, " (limits.max_streams)"));
  }
  const auto held = clients_.find(client);
  if (max_streams_per_client_ == 0 || held == clients_.end() || held->second < max_streams_per_client_) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("client \"", client, "\" has ", held->second,
                                                   " streams open; the limit is ", max_streams_per_client_,
                                                   " (limits.max_streams_per_client)"));
}

absl::Status StreamHub::Add(std::shared_ptr<HubStream> stream) {
  {
    MutexLock lock(&mutex_);
    if (absl::Status room = CheckLimits(stream->client_); !room.ok()) return room;
    ++clients_[stream->client_];
    added_.push_back(stream);
    streams_.push_back(std::move(stream));
  }
  changed_.Signal();
  return absl::OkStatus();
}

void StreamHub::Remove(const HubStream* stream) {
  MutexLock lock(&mutex_);
  Erase(&added_, stream);
  if (!Erase(&streams_, stream)) return;
  const auto client = clients_.find(stream->client_);
  if (--client->second == 0) clients_.erase(client);
  if (streams_.empty()) empty_.SignalAll();
}

StreamLoad StreamHub::Load() const {
  StreamLoad load = {.sent_bytes = sent_bytes_.value()};
  MutexLock lock(&mutex_);
  load.open = streams_.size();
  for (const std::shared_ptr<HubStream>& stream : streams_) load.max_lag = std::max(load.max_lag, stream->lag());
  return load;
}

void StreamHub::Drain() {
  MutexLock lock(&mutex_);
  draining_ = true;
}

bool StreamHub::WaitEmpty(std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(&mutex_);
  while (!streams_.empty()) {
    if (!empty_.WaitUntil(&mutex_, deadline)) return streams_.empty();
  }
  return true;
}

void StreamHub::Wake() {
  {
    MutexLock lock(&mutex_);
    if (woken_ || streams_.empty()) return;
    woken_ = true;
  }
  changed_.Signal();
}

bool StreamHub::Responds(std::chrono::steady_clock::time_point deadline) {
  const uint64_t before = heartbeat_.beats();
  // Not between the thread's beat and its wait.
  { MutexLock lock(&mutex_); }
  changed_.Signal();
  return heartbeat_.AwaitMore(before, deadline);
}

void StreamHub::Run() {
  pthread_setname_np(pthread_self(), "streams");
  auto next = std::chrono::steady_clock::now() + interval_;
  for (;;) {
    Streams due;
    Streams woken;
    HubStream::Occasion occasion;
    {
      MutexLock lock(&mutex_);
      heartbeat_.Beat();
      bool all = false;
      while (!stop_ && added_.empty() && !woken_ && !all) {
        if (streams_.empty()) {
          changed_.Wait(&mutex_);
          next = std::chrono::steady_clock::now() + interval_;
        } else {
          all = !changed_.WaitUntil(&mutex_, next);
        }
        heartbeat_.Beat();
      }
      if (stop_) return;
      due.swap(added_);
      if (all) {
        due = streams_;
        next = std::chrono::steady_clock::now() + interval_;
      } else if (woken_) {
        woken = streams_;
      }
      woken_ = false;
      occasion.draining = draining_;
    }
    const auto tick = [&occasion](HubStream* stream) {
      occasion.eager = stream->wakes_left_ > 1;
      bool wrote = false;
      (void)Guarded([stream, &occasion, &wrote] {
        wrote = stream->Tick(occasion);
        return absl::OkStatus();
      });
      return wrote;
    };
    for (const std::shared_ptr<HubStream>& stream : due) {
      if (stream->idle_) {
        stream->wakes_left_ = kWakes;
      } else if (!stream->fresh_ || stream->wakes_left_ == 0) {
        stream->wakes_left_ = 1;
      }
      stream->fresh_ = stream->idle_;
      stream->idle_ = !tick(stream.get());
    }
    for (const std::shared_ptr<HubStream>& stream : woken) {
      if (stream->wakes_left_ == 0) continue;
      --stream->wakes_left_;
      if (tick(stream.get())) stream->idle_ = false;
    }
  }
}

}  // namespace lenet
