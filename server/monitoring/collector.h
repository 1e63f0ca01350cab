// What a scrape gets: every metric of the server, with its name, unit and labels. server/README.md has the table.
#ifndef LENET_SERVER_MONITORING_COLLECTOR_H_
#define LENET_SERVER_MONITORING_COLLECTOR_H_

#include <functional>
#include <string>
#include <vector>

#include "prometheus/metric_family.h"
#include "server/job/job_manager.h"
#include "server/monitoring/gpu_monitor.h"
#include "server/store/counting_store.h"
#include "server/telemetry/rpc_counters.h"
#include "trainer/backend/backend.h"

namespace lenet {

// Where the numbers come from; all of it outlives its use.
struct MonitorSources {
  std::string version;  // of lenetd
  const Backend* backend = nullptr;
  const JobManager* manager = nullptr;
  const CountingStore* store = nullptr;
  const RpcCounters* calls = nullptr;
  std::function<StreamLoad()> streams;
  const GpuMonitor* gpus = nullptr;  // or null
};

// Safe from any thread. Takes the manager's lock for as long as it copies what runs, and asks the store one question;
// neither training nor a write waits for that. What cannot be had is left out.
std::vector<prometheus::MetricFamily> CollectMetrics(const MonitorSources& sources);

}  // namespace lenet

#endif  // LENET_SERVER_MONITORING_COLLECTOR_H_
