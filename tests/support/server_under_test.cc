#include "tests/support/server_under_test.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/store/job_state.h"
#include "tests/support/dataset_files.h"
#include "tests/support/synthetic_data.h"

namespace lenet {
namespace {

constexpr std::chrono::milliseconds kPoll(1);

Dataset WithTinyImages(Dataset dataset) {
  for (Split* split : {&dataset.train, &dataset.test}) {
    split->shape.height = 4;
    split->shape.width = 4;
    split->images.resize(static_cast<size_t>(split->count) * 16);
  }
  return dataset;
}

void WriteDatasets(const std::filesystem::path& folder) {
  const Dataset small = *SyntheticDataset(640, 100);
  ASSERT_TRUE(WriteDataset(folder / "small", small));
  ASSERT_TRUE(WriteDataset(folder / "tiny-images", WithTinyImages(small)));
  ASSERT_TRUE(WriteDataset(folder / "broken", small));
  std::filesystem::resize_file(folder / "broken" / "train-images-idx3-ubyte", 3);
  Dataset bad_labels = small;
  bad_labels.test.labels[7] = 200;
  ASSERT_TRUE(WriteDataset(folder / "bad-labels", bad_labels));
}

}  // namespace

void Gate::Open() {
  MutexLock lock(&mutex_);
  open_ = true;
  opened_.SignalAll();
}

void Gate::Wait() {
  MutexLock lock(&mutex_);
  while (!open_) opened_.Wait(&mutex_);
}

ScriptedBackend::ScriptedBackend(int devices, Script script, bool oversubscribable)
    : script_(std::move(script)), oversubscribable_(oversubscribable) {
  for (int id = 0; id < devices; ++id) {
    devices_.push_back({.id = id, .name = "Fake", .kind = "fake v1", .memory_bytes = 1 << 30});
  }
}

absl::StatusOr<std::unique_ptr<RankGroup>> ScriptedBackend::NewGroup(std::span<const int> device_ids) {
  absl::StatusOr<FakeScript> script = script_(groups_made_++);
  if (!script.ok()) return script.status();
  return std::make_unique<FakeGroup>(std::vector<int>(device_ids.begin(), device_ids.end()), *std::move(script));
}

ServerUnderTest::ServerUnderTest(ServerUnderTestOptions options)
    : backend_(options.devices, options.script, options.oversubscribable),
      catalog_({temp_.path() / "data"}),
      store_(options.store),
      manager_options_(options.manager) {
  WriteDatasets(temp_.path() / "data");
  manager_options_.checkpoint_root = temp_.path() / "jobs";
  manager_ = std::make_unique<JobManager>(manager_options_, &backend_, &catalog_, &store_);
  if (options.serve) manager_->Serve();
}

void ServerUnderTest::Drain() {
  manager_->BeginDrain();
  EXPECT_TRUE(manager_->WaitIdle(std::chrono::steady_clock::now() + kPatience));
  manager_.reset();
}

void ServerUnderTest::Restart(bool running_go_on) {
  if (manager_ != nullptr) Drain();
  manager_ = std::make_unique<JobManager>(manager_options_, &backend_, &catalog_, &store_);
  const absl::Status recovered = manager_->Recover(running_go_on);
  EXPECT_TRUE(recovered.ok()) << recovered;
  manager_->Serve();
}

v1::StartRequest ServerUnderTest::Request(int64_t max_steps, int ranks) {
  constexpr int64_t kEndless = 1'000'000'000;
  v1::StartRequest request;
  request.mutable_spec()->set_dataset("small");
  request.mutable_spec()->set_batch_size(16);
  request.mutable_spec()->set_ranks(ranks);
  request.mutable_spec()->set_max_steps(max_steps == 0 ? kEndless : max_steps);
  return request;
}

v1::Job ServerUnderTest::AwaitState(const std::string& id, v1::JobState state) {
  v1::Job job;
  const bool came = Eventually([&] {
    job = manager_->GetJob(id).value();
    return job.state() == state || IsTerminal(job.state());
  });
  EXPECT_TRUE(came) << "still " << job.ShortDebugString();
  return job;
}

v1::Job ServerUnderTest::AwaitStep(const std::string& id, int64_t step) {
  v1::Job job;
  const bool came = Eventually([&] {
    job = manager_->GetJob(id).value();
    return job.progress().step() >= step || IsTerminal(job.state());
  });
  EXPECT_TRUE(came) << "still " << job.ShortDebugString();
  return job;
}

std::vector<v1::MetricRecord> ServerUnderTest::ReadLog(const std::string& id, uint64_t from_sequence,
                                                       RecordWishes wishes) {
  google::protobuf::RepeatedPtrField<v1::MetricRecord> records;
  absl::StatusOr<MetricsReader> reader = manager_->ReadMetrics(id, from_sequence, std::move(wishes));
  if (!reader.ok()) {
    ADD_FAILURE() << reader.status();
    return {};
  }
  const bool ended = Eventually([&] {
    const absl::StatusOr<MetricsReader::Place> place = reader->Read(1 << 16, &records);
    EXPECT_TRUE(place.ok()) << place.status();
    return !place.ok() || *place == MetricsReader::Place::kEnd;
  });
  EXPECT_TRUE(ended) << "the log does not end";
  return {records.begin(), records.end()};
}

ServerUnderTestOptions Paced(int devices) {
  ServerUnderTestOptions options;
  options.devices = devices;
  options.script = [](int) { return FakeScript{.step_time = kStepTime}; };
  return options;
}

bool Eventually(const std::function<bool()>& condition, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

}  // namespace lenet
