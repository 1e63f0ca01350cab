// A job manager on a fake backend and a small data set, for tests of the server.
#ifndef LENET_TESTS_SUPPORT_SERVER_UNDER_TEST_H_
#define LENET_TESTS_SUPPORT_SERVER_UNDER_TEST_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lenet/v1/job.pb.h"
#include "lenet/v1/metrics.pb.h"
#include "lenet/v1/training_service.pb.h"
#include "server/job/job_manager.h"
#include "tests/support/failing_store.h"
#include "tests/support/fake_backend.h"
#include "tests/support/temp_folder.h"
#include "trainer/backend/engine_checks.h"
#include "trainer/base/mutex.h"
#include "trainer/data/catalog.h"

namespace lenet {

// A door that threads wait at until it is opened.
class Gate {
 public:
  void Open() ABSL_LOCKS_EXCLUDED(mutex_);
  void Wait() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  CondVar opened_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

// A fake backend whose n-th group (from 0) has its own script.
class ScriptedBackend : public Backend {
 public:
  using Script = std::function<absl::StatusOr<FakeScript>(int group)>;  // an error: no such group can be made

  ScriptedBackend(int devices, Script script, bool oversubscribable = false);

  absl::string_view name() const override { return "fake"; }
  std::span<const DeviceInfo> devices() const override { return devices_; }
  std::vector<std::pair<std::string, std::string>> versions() const override { return {{"fakelib", "1.0"}}; }
  std::vector<std::pair<std::string, std::string>> built_with() const override { return {}; }
  absl::StatusOr<DeviceStatus> Inspect(int /*id*/) const override { return DeviceStatus(); }
  bool supports(Precision precision) const override { return precision == Precision::kFp32; }
  absl::Status CheckEngine(EngineKind engine, const Net& /*net*/, Precision /*precision*/) const override {
    return NoFusedEngine(engine, name());
  }
  bool oversubscribable() const override { return oversubscribable_; }
  bool failures_last() const override { return failures_last_; }
  void set_failures_last(bool last) { failures_last_ = last; }
  absl::StatusOr<std::unique_ptr<RankGroup>> NewGroup(std::span<const int> device_ids) override;

  int groups_made() const { return groups_made_; }

 private:
  const Script script_;
  const bool oversubscribable_;
  std::vector<DeviceInfo> devices_;
  std::atomic<int> groups_made_{0};
  std::atomic<bool> failures_last_{false};
};

struct ServerUnderTestOptions {
  int devices = 2;
  bool oversubscribable = false;
  ScriptedBackend::Script script = [](int) { return FakeScript{}; };
  JobManagerOptions manager;  // checkpoint_root is set
  StoreLimits store;
  bool serve = true;
};

// Its data sets: "small" (640 training and 100 test images of 28x28), "tiny-images" (the same, of 4x4), "broken" (a
// file cut short), "bad-labels" (headers are sound, the test labels have a class that training has not).
class ServerUnderTest {
 public:
  explicit ServerUnderTest(ServerUnderTestOptions options = {});

  ScriptedBackend& backend() { return backend_; }
  DatasetCatalog& catalog() { return catalog_; }
  FailingStore& store() { return store_; }
  JobManager& manager() { return *manager_; }
  std::filesystem::path folder() const { return temp_.path(); }
  // Ends the manager as its destructor does.
  void DestroyManager() { manager_.reset(); }
  // Ends the manager as a server that shuts down does.
  void Drain();
  // A new manager on what the old one, which is drained, has left in the store.
  void Restart(bool running_go_on = true);

  // On the data set "small", batch 16; steps 0: runs until it is stopped (with a step time that the script gives).
  static v1::StartRequest Request(int64_t max_steps, int ranks = 1);

  // Polls until the job is in that state, or in a terminal one.
  v1::Job AwaitState(const std::string& id, v1::JobState state);
  // Polls until all ranks have done that many steps.
  v1::Job AwaitStep(const std::string& id, int64_t step);
  // Reads on until the log ends; gives up after a while.
  std::vector<v1::MetricRecord> ReadLog(const std::string& id, uint64_t from_sequence = 0, RecordWishes wishes = {});

 private:
  TempFolder temp_;
  ScriptedBackend backend_;
  DatasetCatalog catalog_;
  FailingStore store_;
  JobManagerOptions manager_options_;
  std::unique_ptr<JobManager> manager_;
};

// Of jobs that train at a pace at which tests can act on them.
inline constexpr std::chrono::microseconds kStepTime(500);
ServerUnderTestOptions Paced(int devices = 2);

// How long tests wait for what must come.
inline constexpr std::chrono::seconds kPatience(30);

// Polls `condition`; false if it does not come true in time.
bool Eventually(const std::function<bool()>& condition, std::chrono::milliseconds patience = kPatience);

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_SERVER_UNDER_TEST_H_
