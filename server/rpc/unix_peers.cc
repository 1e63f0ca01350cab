#include "server/rpc/unix_peers.h"

#include <atomic>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/server_credentials.h"
#include "server/rpc/requests.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr char kProperty[] = "lenet_uid";
constexpr size_t kMaxWaiting = 100;

// Runs for each call, before its handler.
class Marker : public grpc::AuthMetadataProcessor {
 public:
  // Before the first connection.
  void SetUid(uid_t id) { id_ = id; }

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& /*metadata*/, grpc::AuthContext* context, OutputMetadata* /*consumed*/,
                       OutputMetadata* /*response*/) override ABSL_LOCKS_EXCLUDED(mutex_) {
    // The context is the connection's: its calls share it, and gRPC does not guard it. After a call's own turn here
    // nothing is added any more, so that its handler may read.
    MutexLock lock(&mutex_);
    if (context->FindPropertyValues(kProperty).empty()) context->AddProperty(kProperty, absl::StrCat(id_.load()));
    return grpc::Status::OK;
  }

 private:
  std::atomic<uid_t> id_{0};
  Mutex mutex_;
};

}  // namespace

void GiveToGrpc(grpc::experimental::ExternalConnectionAcceptor* acceptor, int listener, UniqueDescriptor connection) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = listener;
  parameters.fd = connection.release().number;
  acceptor->HandleNewConnection(&parameters);
}

struct UnixPeers::Slot {
  std::shared_ptr<Marker> marker;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
};

UnixPeers::UnixPeers(grpc::ServerBuilder* builder, Users* users)
    : users_(users), look_ups_(std::in_place, 1, kMaxWaiting) {
  using Experimental = grpc::ServerBuilder::experimental_type;
  for (size_t i = 0; i < kMaxUsers; ++i) {
    // Those without any security take no processor. These speak the same.
    const std::shared_ptr<grpc::ServerCredentials> credentials = grpc::experimental::LocalServerCredentials(UDS);
    Slot slot = {.marker = std::make_shared<Marker>(), .acceptor = nullptr};
    credentials->SetAuthMetadataProcessor(slot.marker);
    slot.acceptor = builder->experimental().AddExternalConnectionAcceptor(Experimental::ExternalConnectionType::FROM_FD,
                                                                          credentials);
    slots_.push_back(std::move(slot));
  }
}

UnixPeers::~UnixPeers() = default;

absl::Status UnixPeers::HandOver(int listener, UniqueDescriptor connection) {
  const std::optional<uid_t> id = PeerOf(connection.get());
  if (!id) return absl::InternalError("the system does not tell whose a connection of a unix socket is");
  LENET_ASSIGN_OR_RETURN(const Slot* const slot, SlotOf(*id));
  if (users_->Knows(*id)) {
    GiveToGrpc(slot->acceptor.get(), listener, std::move(connection));
    return absl::OkStatus();
  }
  // A look-up may take long, and neither other connections nor gRPC's threads must wait for it.
  const auto waiting = std::make_shared<UniqueDescriptor>(std::move(connection));
  const bool runs = look_ups_->Run([this, id = *id, slot, listener, waiting] {
    if (const absl::Status known = users_->Find(id).status(); !known.ok()) {
      Log(LogLevel::kWarning, absl::StrCat("refusing a connection of unix:", id, ": ", known.message()));
      return;
    }
    GiveToGrpc(slot->acceptor.get(), listener, std::move(*waiting));
  });
  if (runs) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(kMaxWaiting, " wait for their users to be looked up, and ", kMaxWaiting, " is the limit"));
}

absl::StatusOr<const UnixPeers::Slot*> UnixPeers::SlotOf(uid_t id) {
  MutexLock lock(&mutex_);
  if (const auto found = taken_.find(id); found != taken_.end()) return &slots_[found->second];
  // One that is given to another user while a call of the first is on its way would make that the other's.
  if (taken_.size() == slots_.size()) {
    return absl::ResourceExhaustedError(absl::StrCat("unix:", id, " is one user too many: ", slots_.size(),
                                                     " others have connected over unix sockets since the start, and ",
                                                     slots_.size(), " is the limit"));
  }
  const size_t next = taken_.size();
  slots_[next].marker->SetUid(id);
  taken_[id] = next;
  return &slots_[next];
}

std::optional<uid_t> PeerOf(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> connection = context.auth_context();
  if (connection == nullptr) return std::nullopt;
  const std::vector<grpc::string_ref> values = connection->FindPropertyValues(kProperty);
  uid_t id = 0;
  if (values.empty() || !absl::SimpleAtoi(absl::string_view(values[0].data(), values[0].size()), &id)) {
    return std::nullopt;
  }
  return id;
}

std::string CountedClient(const grpc::ServerContextBase& context) {
  const std::optional<uid_t> id = PeerOf(context);
  return id ? absl::StrCat("unix:", *id) : NetworkOf(ClientOf(context.peer()));
}

}  // namespace lenet
