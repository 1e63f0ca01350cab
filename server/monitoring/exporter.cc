#include "server/monitoring/exporter.h"

#include <CivetServer.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "prometheus/collectable.h"
#include "prometheus/exposer.h"
#include "trainer/base/descriptor.h"
#include "trainer/base/log.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr int kThreads = 2;
// A client that sends or reads nothing for so long is dropped.
constexpr int kRequestTimeoutMs = 10000;
constexpr std::chrono::milliseconds kTouchInterval(5);

struct NumericAddress {
  std::string host;   // brackets around an IPv6 address
  std::string bytes;  // of the sockaddr, without a port
  bool loopback = false;
};

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

absl::StatusOr<NumericAddress> Resolve(const std::string& host) {
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return absl::UnavailableError(::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  std::array<char, NI_MAXHOST> text = {};
  if (const int error =
          ::getnameinfo(found->ai_addr, found->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
      error != 0) {
    return absl::UnavailableError(::gai_strerror(error));
  }
  NumericAddress address = {.host = text.data(),
                            .bytes = {reinterpret_cast<const char*>(found->ai_addr), found->ai_addrlen},
                            .loopback = IsLoopback(found->ai_addr)};
  if (found->ai_family == AF_INET6) address.host = absl::StrCat("[", address.host, "]");
  return address;
}

void SetPort(int port, std::string* address) {
  // Both families have it in the same place.
  reinterpret_cast<sockaddr_in*>(address->data())->sin_port = htons(static_cast<uint16_t>(port));
}

// Connects, and closes the connection.
void Touch(const std::string& address) {
  const auto* const to = reinterpret_cast<const sockaddr*>(address.data());
  const int number = ::socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (number < 0) return;
  const UniqueDescriptor connection(Descriptor{number});
  (void)::connect(number, to, static_cast<socklen_t>(address.size()));
}

// civetweb tells why it cannot start by its log alone, from the thread that starts it and without a context.
thread_local std::string* start_error = nullptr;

int OnMessage(const mg_connection* /*connection*/, const char* message) {
  if (start_error == nullptr) {
    Log(LogLevel::kDebug, absl::StrCat("metrics endpoint: ", message));
  } else if (start_error->empty()) {
    // The first is the cause, those that follow tell what failed by it.
    *start_error = message;
  }
  return 1;
}

absl::StatusOr<std::unique_ptr<prometheus::Exposer>> NewExposer(const std::string& address) {
  std::string error;
  CivetCallbacks callbacks;
  callbacks.log_message = OnMessage;
  const std::vector<std::string> options = {"listening_ports",    address,
                                            "num_threads",        absl::StrCat(kThreads),
                                            "request_timeout_ms", absl::StrCat(kRequestTimeoutMs)};
  start_error = &error;
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(options, &callbacks);
    start_error = nullptr;
    return exposer;
  } catch (const std::exception& thrown) {
    start_error = nullptr;
    return absl::UnavailableError(error.empty() ? thrown.what() : error);
  }
}

}  // namespace

class Exporter::Collector : public prometheus::Collectable {
 public:
  explicit Collector(MonitorSources sources) : sources_(std::move(sources)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    try {
      return CollectMetrics(sources_);
    } catch (const std::exception& error) {
      Log(LogLevel::kError, absl::StrCat("exception in a scrape: ", error.what()));
      return {};
    }
  }

 private:
  const MonitorSources sources_;
};

absl::StatusOr<std::unique_ptr<Exporter>> Exporter::Start(const std::string& host, int port, MonitorSources sources) {
  const std::string wanted = absl::StrCat("cannot listen on ", host, ":", port);
  absl::StatusOr<NumericAddress> address = Resolve(host);
  if (!address.ok()) return Annotate(address.status(), wanted);
  absl::StatusOr<std::unique_ptr<prometheus::Exposer>> exposer = NewExposer(absl::StrCat(address->host, ":", port));
  if (!exposer.ok()) return Annotate(exposer.status(), wanted);
  std::unique_ptr<Exporter> exporter(new Exporter);
  exporter->loopback_ = address->loopback;
  exporter->collector_ = std::make_shared<Collector>(std::move(sources));
  exporter->exposer_ = *std::move(exposer);
  exporter->exposer_->RegisterCollectable(exporter->collector_);
  const std::vector<int> ports = exporter->exposer_->GetListeningPorts();
  const int got = ports.empty() ? port : ports.front();
  exporter->url_ = absl::StrCat("http://", address->host, ":", got, "/metrics");
  exporter->socket_address_ = address->bytes;
  SetPort(got, &exporter->socket_address_);
  return exporter;
}

Exporter::~Exporter() {
  if (exposer_ == nullptr) return;
  try {
    // civetweb looks only every two seconds whether it is to end, or at a connection.
    const std::future<void> ended = std::async(std::launch::async, [this] { exposer_.reset(); });
    while (ended.wait_for(kTouchInterval) != std::future_status::ready) Touch(socket_address_);
  } catch (const std::exception& error) {
    // There is no thread for it: it ends with this one's members.
    Log(LogLevel::kDebug, absl::StrCat("metrics endpoint: ends slowly: ", error.what()));
  }
}

}  // namespace lenet
