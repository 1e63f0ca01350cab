#include "server/monitoring/collector.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lenet/v1/job.pb.h"
#include "server/monitoring/process_stats.h"
#include "server/store/job_state.h"
#include "server/telemetry/job_counters.h"

namespace lenet {
namespace {

using Families = std::vector<prometheus::MetricFamily>;
using Label = prometheus::ClientMetric::Label;
using prometheus::MetricType;

// By number, as google.rpc.Code has them.
constexpr const char* kCodeNames[RpcMethodCounters::kCodes] = {
    "OK",        "CANCELLED",       "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS",  "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",    "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED",
};

// Metrics of one name.
class Family {
 public:
  Family(std::string name, std::string help, MetricType type) {
    family_.name = std::move(name);
    family_.help = std::move(help);
    family_.type = type;
  }

  void Add(double value, std::vector<Label> labels = {}) {
    prometheus::ClientMetric& metric = NewMetric(std::move(labels));
    (family_.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  }
  void Add(const std::optional<uint64_t>& value, const std::vector<Label>& labels) {
    if (value) Add(static_cast<double>(*value), labels);
  }
  void Add(const std::optional<double>& value, const std::vector<Label>& labels) {
    if (value) Add(*value, labels);
  }
  void Add(const Counter& counter, std::vector<Label> labels = {}) {
    Add(static_cast<double>(counter.value()), std::move(labels));
  }
  void Add(const DurationHistogram& durations, std::vector<Label> labels = {}) {
    prometheus::ClientMetric::Histogram& histogram = NewMetric(std::move(labels)).histogram;
    const DurationHistogram::Snapshot snapshot = durations.Get();
    for (size_t i = 0; i < snapshot.counts.size(); ++i) {
      histogram.sample_count += snapshot.counts[i];
      const double bound =
          i < durations.bounds().size() ? durations.bounds()[i] : std::numeric_limits<double>::infinity();
      histogram.bucket.push_back({.cumulative_count = histogram.sample_count, .upper_bound = bound});
    }
    histogram.sample_sum = snapshot.sum;
  }

  // A name without a metric says nothing.
  void MoveTo(Families* families) {
    if (!family_.metric.empty()) families->push_back(std::move(family_));
  }

 private:
  prometheus::ClientMetric& NewMetric(std::vector<Label> labels) {
    prometheus::ClientMetric& metric = family_.metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }

  prometheus::MetricFamily family_;
};

void AddBuild(const MonitorSources& sources, Families* families) {
  Family info("lenet_build_info", "Version and backend of lenetd; always 1.", MetricType::Gauge);
  info.Add(1, {{"version", sources.version}, {"backend", std::string(sources.backend->name())}});
  info.MoveTo(families);
}

void AddProcess(Families* families) {
  const absl::StatusOr<ProcessStats> stats = ReadProcessStats();
  if (!stats.ok()) return;
  const auto add = [families](const char* name, const char* help, MetricType type, double value) {
    Family family(name, help, type);
    family.Add(value);
    family.MoveTo(families);
  };
  add("process_cpu_seconds_total", "User and system CPU time.", MetricType::Counter, stats->cpu_seconds);
  add("process_start_time_seconds", "Start of the process, since 1970.", MetricType::Gauge, stats->start_time);
  add("process_resident_memory_bytes", "Memory in RAM.", MetricType::Gauge, static_cast<double>(stats->resident_bytes));
  add("process_virtual_memory_bytes", "Address space.", MetricType::Gauge, static_cast<double>(stats->virtual_bytes));
  add("process_threads", "Threads.", MetricType::Gauge, static_cast<double>(stats->threads));
  add("process_open_fds", "Open file descriptors.", MetricType::Gauge, static_cast<double>(stats->open_fds));
  add("process_max_fds", "File descriptors that may be open.", MetricType::Gauge, static_cast<double>(stats->max_fds));
}

void AddStoredJobs(const CountingStore& store, Families* families) {
  const absl::StatusOr<std::map<v1::JobState, int64_t>> counts = store.CountJobs();
  Family jobs("lenet_jobs", "Jobs that are remembered, by state.", MetricType::Gauge);
  for (int state = v1::JobState_MIN; counts.ok() && state <= v1::JobState_MAX; ++state) {
    if (!v1::JobState_IsValid(state) || state == v1::JOB_STATE_UNSPECIFIED) continue;
    const auto found = counts->find(static_cast<v1::JobState>(state));
    jobs.Add(found == counts->end() ? 0 : static_cast<double>(found->second),
             {{"state", std::string(StateName(static_cast<v1::JobState>(state)))}});
  }
  jobs.MoveTo(families);

  const StoreCounters& counters = store.counters();
  Family accepted("lenet_jobs_accepted_total", "Jobs accepted since the start.", MetricType::Counter);
  accepted.Add(counters.accepted);
  accepted.MoveTo(families);
  Family ended("lenet_jobs_ended_total", "Jobs ended since the start, by their last state.", MetricType::Counter);
  ended.Add(counters.succeeded, {{"state", "SUCCEEDED"}});
  ended.Add(counters.failed, {{"state", "FAILED"}});
  ended.Add(counters.stopped, {{"state", "STOPPED"}});
  ended.MoveTo(families);
}

void AddStore(const StoreCounters& counters, Families* families) {
  Family seconds("lenet_store_write_duration_seconds", "Time of calls that write to the store.", MetricType::Histogram);
  Family failures("lenet_store_failures_total", "Calls that the store could not serve, by operation.",
                  MetricType::Counter);
  for (const StoreCounters::Operation* operation : counters.writes()) {
    const std::vector<Label> labels = {{"operation", std::string(operation->name)}};
    seconds.Add(operation->seconds, labels);
    failures.Add(operation->failures, labels);
  }
  failures.Add(counters.read_failures, {{"operation", "read"}});
  seconds.MoveTo(families);
  failures.MoveTo(families);
}

void AddDevices(const MonitorSources& sources, Families* families) {
  const ServerLoad load = sources.manager->Load();
  const JobCounters& counters = sources.manager->counters();
  Family draining("lenet_draining", "1 once the server shuts down and takes no more jobs.", MetricType::Gauge);
  draining.Add(load.draining ? 1 : 0);
  draining.MoveTo(families);
  Family info("lenet_device_info", "Devices and their names; always 1.", MetricType::Gauge);
  Family healthy("lenet_device_healthy", "0 while a device is excluded because it failed.", MetricType::Gauge);
  Family busy("lenet_device_busy", "1 while a job holds the device.", MetricType::Gauge);
  Family steps("lenet_device_steps_total", "Training steps of ranks on the device.", MetricType::Counter);
  Family images("lenet_device_images_total", "Images trained on by ranks on the device.", MetricType::Counter);
  for (const DeviceInfo& device : sources.backend->devices()) {
    const auto index = static_cast<size_t>(device.id);
    const std::vector<Label> labels = {{"device", absl::StrCat(device.id)}};
    info.Add(1, {labels.front(), {"name", device.name}, {"kind", device.kind}});
    healthy.Add(load.devices[index].unhealthy.empty() ? 1 : 0, labels);
    busy.Add(load.devices[index].holder.empty() ? 0 : 1, labels);
    steps.Add(counters.devices[index].steps, labels);
    images.Add(counters.devices[index].images, labels);
  }
  for (Family* family : {&info, &healthy, &busy, &steps, &images}) family->MoveTo(families);
  Family wait("lenet_job_queue_wait_seconds", "Time that jobs waited in the queue for devices.", MetricType::Histogram);
  wait.Add(counters.queue_wait);
  wait.MoveTo(families);
  Family step("lenet_step_duration_seconds", "Time of a rank's training steps, as the mean of each reported chunk.",
              MetricType::Histogram);
  step.Add(counters.step);
  step.MoveTo(families);
}

void AddRunningJobs(const JobManager& manager, Families* families) {
  Family loss("lenet_job_loss", "Newest step loss of a rank of a running job.", MetricType::Gauge);
  Family step("lenet_job_step", "Steps that every rank of a running job has done.", MetricType::Gauge);
  Family epoch("lenet_job_epoch", "Epochs that a running job has finished.", MetricType::Gauge);
  Family accuracy("lenet_job_accuracy_ratio", "Newest test accuracy of a running job, 0 to 1.", MetricType::Gauge);
  for (const RunningJob& job : manager.Running()) {
    const Label id = {"job_id", job.id};
    for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
      if (job.ranks[rank].reported) loss.Add(double{job.ranks[rank].loss}, {id, {"rank", absl::StrCat(rank)}});
    }
    step.Add(static_cast<double>(job.progress.step()), {id});
    epoch.Add(static_cast<double>(job.progress.epoch()), {id});
    if (job.progress.evaluated()) accuracy.Add(job.progress.accuracy(), {id});
  }
  for (Family* family : {&loss, &step, &epoch, &accuracy}) family->MoveTo(families);
}

// Named as gRPC's usual Prometheus interceptors name them.
void AddCalls(const RpcCounters& calls, Families* families) {
  Family started("grpc_server_started_total", "Calls begun.", MetricType::Counter);
  Family handled("grpc_server_handled_total", "Calls ended, by the status they were answered with.",
                 MetricType::Counter);
  Family handling("grpc_server_handling_seconds", "Time of unary calls, until their status is known.",
                  MetricType::Histogram);
  Family in_flight("lenet_rpcs_in_flight", "Calls that have begun and not ended.", MetricType::Gauge);
  for (const RpcMethodCounters& method : calls.methods()) {
    const std::vector<Label> labels = {{"grpc_service", method.name.service}, {"grpc_method", method.name.method}};
    started.Add(method.started, labels);
    for (size_t code = 0; code < method.handled.size(); ++code) {
      // OK always, so that a rate can be taken from the first call on.
      if (code > 0 && method.handled[code].value() == 0) continue;
      handled.Add(method.handled[code], {labels[0], labels[1], {"grpc_code", kCodeNames[code]}});
    }
    if (!method.name.streams) handling.Add(method.handling, labels);
    in_flight.Add(static_cast<double>(method.in_flight.load(std::memory_order_relaxed)), labels);
  }
  for (Family* family : {&started, &handled, &handling, &in_flight}) family->MoveTo(families);
}

void AddStreams(const StreamLoad& load, Families* families) {
  Family subscribers("lenet_stream_subscribers", "Open streams of metrics and jobs.", MetricType::Gauge);
  subscribers.Add(static_cast<double>(load.open));
  subscribers.MoveTo(families);
  Family lag("lenet_stream_lag_records", "Records that the stream furthest behind a running job has yet to read.",
             MetricType::Gauge);
  lag.Add(static_cast<double>(load.max_lag));
  lag.MoveTo(families);
  Family sent("lenet_stream_sent_bytes_total", "Bytes of packed messages that streams have sent.", MetricType::Counter);
  sent.Add(static_cast<double>(load.sent_bytes));
  sent.MoveTo(families);
}

void AddGpus(const GpuMonitor& monitor, Families* families) {
  Family info("lenet_gpu_info", "GPUs that the driver knows, with their names; always 1.", MetricType::Gauge);
  Family memory("lenet_gpu_memory_bytes", "Memory of the GPU.", MetricType::Gauge);
  Family used("lenet_gpu_memory_used_bytes", "Memory of the GPU that is in use, by any process.", MetricType::Gauge);
  Family utilization("lenet_gpu_utilization_ratio", "Part of the time in which a kernel ran, 0 to 1.",
                     MetricType::Gauge);
  Family temperature("lenet_gpu_temperature_celsius", "Temperature of the GPU.", MetricType::Gauge);
  Family power("lenet_gpu_power_watts", "Power that the GPU takes.", MetricType::Gauge);
  Family ecc("lenet_gpu_ecc_errors_total", "Memory errors since the driver was loaded, by type.", MetricType::Counter);
  Family xids("lenet_gpu_xid_errors_total", "Xid errors that the driver reported since the start.",
              MetricType::Counter);
  Family last_xid("lenet_gpu_last_xid", "Number of the newest Xid error; 0: none.", MetricType::Gauge);
  for (const GpuReading& gpu : monitor.Latest()) {
    const std::vector<Label> labels = {{"gpu", absl::StrCat(gpu.index)}, {"uuid", gpu.uuid}};
    info.Add(1, {labels[0], labels[1], {"name", gpu.name}});
    memory.Add(gpu.memory_bytes, labels);
    used.Add(gpu.memory_used_bytes, labels);
    utilization.Add(gpu.utilization, labels);
    temperature.Add(gpu.temperature, labels);
    power.Add(gpu.power, labels);
    ecc.Add(gpu.ecc_corrected, {labels[0], labels[1], {"type", "corrected"}});
    ecc.Add(gpu.ecc_uncorrected, {labels[0], labels[1], {"type", "uncorrected"}});
    xids.Add(gpu.xids, labels);
    if (gpu.xids) last_xid.Add(static_cast<double>(gpu.last_xid), labels);
  }
  for (Family* family : {&info, &memory, &used, &utilization, &temperature, &power, &ecc, &xids, &last_xid}) {
    family->MoveTo(families);
  }
}

}  // namespace

Families CollectMetrics(const MonitorSources& sources) {
  Families families;
  AddBuild(sources, &families);
  AddProcess(&families);
  AddStoredJobs(*sources.store, &families);
  AddStore(sources.store->counters(), &families);
  AddDevices(sources, &families);
  AddRunningJobs(*sources.manager, &families);
  AddCalls(*sources.calls, &families);
  AddStreams(sources.streams(), &families);
  if (sources.gpus != nullptr) AddGpus(*sources.gpus, &families);
  return families;
}

}  // namespace lenet
