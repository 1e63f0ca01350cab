#include "server/monitoring/gpu_monitor.h"

#include <pthread.h>

#include <array>
#include <exception>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "server/monitoring/nvml.h"
#include "trainer/base/log.h"
#include "trainer/base/mutex.h"
#include "trainer/base/status.h"
#include "trainer/base/text.h"

namespace lenet {
namespace {

using Clock = std::chrono::steady_clock;

// How long the destructor waits for the thread, which looks up from waiting for events so often.
constexpr std::chrono::milliseconds kEndPatience(1000);
constexpr std::chrono::milliseconds kLookUp(200);

struct Gpu {
  Nvml::Device device = nullptr;
  GpuReading reading;  // without the sensors
};

std::string Text(Nvml::Device device, decltype(Nvml::DeviceUuid) get) {
  std::array<char, Nvml::kNameSize> text = {};
  if (get(device, text.data(), static_cast<unsigned int>(text.size() - 1)) != Nvml::kSuccess) return "";
  return ValidUtf8(text.data());
}

std::optional<uint64_t> EccErrors(const Nvml& nvml, Nvml::Device device, int type) {
  unsigned long long count = 0;
  if (nvml.DeviceEccErrors(device, type, Nvml::kSinceDriverLoad, &count) != Nvml::kSuccess) return std::nullopt;
  return count;
}

GpuReading Read(const Nvml& nvml, const Gpu& gpu) {
  GpuReading reading = gpu.reading;
  if (Nvml::Memory memory = {}; nvml.DeviceMemory(gpu.device, &memory) == Nvml::kSuccess) {
    reading.memory_bytes = memory.total;
    reading.memory_used_bytes = memory.used;
  }
  if (Nvml::Utilization used = {}; nvml.DeviceUtilization(gpu.device, &used) == Nvml::kSuccess) {
    reading.utilization = used.gpu / 100.0;
  }
  if (unsigned int celsius = 0; nvml.DeviceTemperature(gpu.device, Nvml::kGpuSensor, &celsius) == Nvml::kSuccess) {
    reading.temperature = celsius;
  }
  if (unsigned int milliwatts = 0; nvml.DevicePower(gpu.device, &milliwatts) == Nvml::kSuccess) {
    reading.power = milliwatts / 1000.0;
  }
  reading.ecc_corrected = EccErrors(nvml, gpu.device, Nvml::kCorrected);
  reading.ecc_uncorrected = EccErrors(nvml, gpu.device, Nvml::kUncorrected);
  return reading;
}

}  // namespace

struct GpuMonitor::State {
  explicit State(const GpuMonitorOptions& monitor_options) : options(monitor_options) {}

  void Run(const Nvml& nvml) ABSL_LOCKS_EXCLUDED(mutex);
  bool stopped() ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(&mutex);
    return stop;
  }
  // Sleeps until then, or until it is to stop; counts meanwhile what the driver reports, if `events` is set.
  void AwaitNext(const Nvml& nvml, Nvml::EventSet events, Clock::time_point next, std::vector<Gpu>* gpus)
      ABSL_LOCKS_EXCLUDED(mutex);

  const GpuMonitorOptions options;
  Mutex mutex;
  CondVar changed;
  bool stop ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  std::vector<GpuReading> latest ABSL_GUARDED_BY(mutex);
  Clock::time_point read_at ABSL_GUARDED_BY(mutex);
};

void GpuMonitor::State::Run(const Nvml& nvml) {
  unsigned int count = 0;
  if (nvml.Init() != Nvml::kSuccess || nvml.DeviceCount(&count) != Nvml::kSuccess) {
    Log(LogLevel::kWarning, "the GPUs' sensors cannot be read: NVML does not start");
    return;
  }
  Nvml::EventSet events = nullptr;
  if (nvml.NewEventSet(&events) != Nvml::kSuccess) events = nullptr;
  std::vector<Gpu> gpus;
  bool any_events = false;
  for (unsigned int i = 0; i < count; ++i) {
    Gpu gpu;
    gpu.reading.index = static_cast<int>(i);
    if (nvml.DeviceByIndex(i, &gpu.device) != Nvml::kSuccess) continue;
    gpu.reading.uuid = Text(gpu.device, nvml.DeviceUuid);
    gpu.reading.name = Text(gpu.device, nvml.DeviceName);
    if (events != nullptr && nvml.RegisterEvents(gpu.device, Nvml::kXidEvent, events) == Nvml::kSuccess) {
      gpu.reading.xids = 0;
      any_events = true;
    }
    gpus.push_back(std::move(gpu));
  }
  while (!stopped()) {
    const Clock::time_point next = Clock::now() + options.interval;
    std::vector<GpuReading> readings;
    for (const Gpu& gpu : gpus) readings.push_back(Read(nvml, gpu));
    {
      MutexLock lock(&mutex);
      latest = std::move(readings);
      read_at = Clock::now();
    }
    AwaitNext(nvml, any_events ? events : nullptr, next, &gpus);
  }
}

void GpuMonitor::State::AwaitNext(const Nvml& nvml, Nvml::EventSet events, Clock::time_point next,
                                  std::vector<Gpu>* gpus) {
  while (events != nullptr && Clock::now() < next && !stopped()) {
    Nvml::EventData data = {};
    const Nvml::Return result = nvml.WaitForEvent(events, &data, static_cast<unsigned int>(kLookUp.count()));
    if (result == Nvml::kTimeout) continue;
    if (result != Nvml::kSuccess) break;
    for (Gpu& gpu : *gpus) {
      if (gpu.device != data.device || (data.type & Nvml::kXidEvent) == 0) continue;
      gpu.reading.xids = gpu.reading.xids.value_or(0) + 1;
      gpu.reading.last_xid = data.data;
      Log(LogLevel::kError, absl::StrCat("GPU ", gpu.reading.index, " (", gpu.reading.uuid, "): Xid ", data.data));
    }
  }
  MutexLock lock(&mutex);
  while (!stop && changed.WaitUntil(&mutex, next)) {
  }
}

absl::StatusOr<std::unique_ptr<GpuMonitor>> GpuMonitor::Start(const GpuMonitorOptions& options) {
  LENET_ASSIGN_OR_RETURN(const Nvml nvml, Nvml::Load(options.library));
  auto state = std::make_shared<State>(options);
  try {
    std::thread([state, nvml] {
      pthread_setname_np(pthread_self(), "gpus");
      try {
        state->Run(nvml);
      } catch (const std::exception& error) {
        Log(LogLevel::kError, absl::StrCat("the GPUs' sensors are read no more: ", error.what()));
      }
      MutexLock lock(&state->mutex);
      state->ended = true;
      state->changed.SignalAll();
    }).detach();
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("a thread for the GPUs' sensors: ", error.what()));
  }
  return std::unique_ptr<GpuMonitor>(new GpuMonitor(std::move(state)));
}

GpuMonitor::~GpuMonitor() {
  const Clock::time_point deadline = Clock::now() + kEndPatience;
  MutexLock lock(&state_->mutex);
  state_->stop = true;
  state_->changed.SignalAll();
  while (!state_->ended) {
    if (!state_->changed.WaitUntil(&state_->mutex, deadline)) return;
  }
}

std::vector<GpuReading> GpuMonitor::Latest() const {
  MutexLock lock(&state_->mutex);
  if (Clock::now() - state_->read_at > state_->options.max_age) return {};
  return state_->latest;
}

}  // namespace lenet
