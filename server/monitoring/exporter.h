// The HTTP endpoint that Prometheus scrapes.
#ifndef LENET_SERVER_MONITORING_EXPORTER_H_
#define LENET_SERVER_MONITORING_EXPORTER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/monitoring/collector.h"

namespace prometheus {
class Exposer;
}

namespace lenet {

// Serves GET /metrics from two threads of its own: clients that are slow keep each other waiting, and nothing else.
class Exporter {
 public:
  // Listens on the first address of the host; port 0: any free one. UNAVAILABLE, with the reason, if that cannot be
  // had. The sources outlive it.
  static absl::StatusOr<std::unique_ptr<Exporter>> Start(const std::string& host, int port, MonitorSources sources);
  // Waits for scrapes that are being answered.
  ~Exporter();
  Exporter(const Exporter&) = delete;
  Exporter& operator=(const Exporter&) = delete;

  // "http://127.0.0.1:25051/metrics", with the port that was got.
  const std::string& url() const { return url_; }
  // Only this machine reaches it.
  bool loopback() const { return loopback_; }

 private:
  class Collector;
  Exporter() = default;

  std::string url_;
  std::string socket_address_;  // the bytes of a sockaddr, with the port that was got
  bool loopback_ = false;
  std::shared_ptr<Collector> collector_;
  std::unique_ptr<prometheus::Exposer> exposer_;  // its threads use the collector
};

}  // namespace lenet

#endif  // LENET_SERVER_MONITORING_EXPORTER_H_
