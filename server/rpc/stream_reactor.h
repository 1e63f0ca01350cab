// A server stream that the hub drives.
#ifndef LENET_SERVER_RPC_STREAM_REACTOR_H_
#define LENET_SERVER_RPC_STREAM_REACTOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/support/server_callback.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/guarded.h"
#include "server/rpc/stream_hub.h"
#include "trainer/base/mutex.h"

namespace lenet {

// One message in flight at most: a slow client holds one response and a cursor, and the next message is made when the
// one before has left. Lives until gRPC is done with it and the hub has let go.
template <typename Response>
class StreamReactor : public grpc::ServerWriteReactor<Response>, public HubStream {
 public:
  // Opens the stream, or ends it at once if `stream` is an error or the hub is full. The result is for gRPC.
  template <typename Derived>
  static grpc::ServerWriteReactor<Response>* Open(absl::StatusOr<std::shared_ptr<Derived>> stream, StreamHub* hub) {
    if (!stream.ok()) return new Refusal(stream.status());
    Derived* const reactor = stream->get();
    reactor->hub_ = hub;
    reactor->self_ = *stream;
    reactor->StartSendInitialMetadata();
    if (const absl::Status added = hub->Add(*stream); !added.ok()) {
      reactor->Claim();
      reactor->End(added);
    }
    return reactor;
  }

  bool Tick(const Occasion& occasion) final ABSL_LOCKS_EXCLUDED(mutex_) {
    if (!Claim()) return true;
    response_.Clear();
    const absl::StatusOr<Step> step = Guarded([this, &occasion] { return Next(occasion.eager, &response_); });
    if (!step.ok()) {
      End(step.status());
    } else if (*step == Step::kWrite || *step == Step::kLastWrite) {
      last_ = *step == Step::kLastWrite;
      this->StartWrite(&response_);
      return true;
    } else if (*step == Step::kEnd) {
      End(absl::OkStatus());
    } else if (occasion.draining) {
      End(absl::UnavailableError("the server is shutting down"));
    } else {
      Yield();
    }
    return false;
  }

 protected:
  explicit StreamReactor(std::string client) : HubStream(std::move(client)) {}

  enum class Step {
    kNothing,    // nothing to write now
    kWrite,      // the response is to be written
    kLastWrite,  // and then the stream ends
    kEnd,        // the stream ends
  };

  // Fills the empty response. On the hub's thread. `eager`: see Occasion. An error or an exception ends the stream.
  virtual absl::StatusOr<Step> Next(bool eager, Response* response) = 0;

 private:
  class Refusal : public grpc::ServerWriteReactor<Response> {
   public:
    explicit Refusal(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }
    void OnDone() override { delete this; }
  };

  void OnWriteDone(bool ok) final {
    if (!ok) return End(absl::CancelledError("the client is gone"));
    // As it was when it was packed.
    hub_->CountSent(static_cast<uint64_t>(response_.GetCachedSize()));
    if (last_) return End(absl::OkStatus());
    Yield();
  }

  void OnCancel() final ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
      if (claimed_) return;  // who holds the claim ends the stream
      claimed_ = true;
    }
    End(absl::CancelledError("cancelled"));
  }

  void OnDone() final {
    hub_->Remove(this);
    // May destroy this.
    std::shared_ptr<StreamReactor> self = std::move(self_);
  }

  // From a successful Claim to Yield the stream is the caller's; it is kept through a write, and for good by End. So
  // there is one operation at a time, and one Finish.
  bool Claim() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (claimed_) return false;
    claimed_ = true;
    return true;
  }

  void Yield() ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (!cancelled_) {
        claimed_ = false;
        return;
      }
    }
    End(absl::CancelledError("cancelled"));
  }

  void End(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }

  StreamHub* hub_ = nullptr;
  std::shared_ptr<StreamReactor> self_;
  Response response_;
  bool last_ = false;
  Mutex mutex_;
  bool claimed_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lenet

#endif  // LENET_SERVER_RPC_STREAM_REACTOR_H_
