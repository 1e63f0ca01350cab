// Times the training step of a backend: microseconds a step and images a second, for each batch size and rank count.
// The loop is the trainer's: chunks of steps, two in flight, one thread a rank.

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "tests/support/rank_threads.h"
#include "tests/support/synthetic_data.h"
#include "trainer/backend/plugin.h"
#include "trainer/base/status.h"
#include "trainer/data/catalog.h"
#include "trainer/data/sampler.h"
#include "trainer/nn/init.h"
#include "trainer/nn/net.h"

namespace lenet {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string backend = "cpu";
  std::string plugins;
  std::string net = "lenet";
  std::string data;
  std::string precision = "fp32";
  float clip_norm = 0;
  std::vector<int> batches = {64};
  std::vector<int> ranks = {1};
  int steps = 500;
  int repeat = 9;
  int chunk = 32;
  bool json = false;
};

// Runs `steps` steps from `first_step` on: all ranks call it.
absl::Status RunSteps(Engine* engine, const EpochSampler& sampler, int rank, int batch, int64_t first_step, int steps,
                      int chunk) {
  std::vector<uint32_t> indices(static_cast<size_t>(chunk) * batch);
  const std::vector<float> rates(chunk, 0.01f);
  std::vector<float> losses(chunk);
  std::vector<int> in_flight;
  for (int done = 0; done < steps || !in_flight.empty();) {
    const int count = std::min(chunk, steps - done);
    if (count > 0) {
      for (int s = 0; s < count; ++s) {
        const int64_t step = first_step + done + s;
        sampler.Batch(step / sampler.steps_per_epoch(), step % sampler.steps_per_epoch(), rank,
                      std::span(indices).subspan(static_cast<size_t>(s) * batch, batch));
      }
      LENET_RETURN_IF_ERROR(engine->Enqueue({.first_step = first_step + done,
                                             .indices = std::span(indices).first(static_cast<size_t>(count) * batch),
                                             .learning_rates = std::span(rates).first(count)}));
      in_flight.push_back(count);
      done += count;
    }
    if (in_flight.size() == Engine::kMaxChunksInFlight || count == 0) {
      LENET_RETURN_IF_ERROR(engine->Wait(std::span(losses).first(in_flight.front())));
      in_flight.erase(in_flight.begin());
    }
  }
  return absl::OkStatus();
}

// Microseconds a step of each repeat.
absl::StatusOr<std::vector<double>> Measure(const Options& options, Backend* backend, const Net& net,
                                            std::shared_ptr<const Dataset> dataset, int batch, int ranks,
                                            std::string* engine_name) {
  std::vector<int> devices(ranks);
  const int device_count = static_cast<int>(backend->devices().size());
  for (int rank = 0; rank < ranks; ++rank) devices[rank] = rank % device_count;
  LENET_ASSIGN_OR_RETURN(const std::unique_ptr<RankGroup> group, backend->NewGroup(devices));
  std::vector<float> parameters(net.flat_size());
  Initialize(net, {}, /*seed=*/1, parameters);
  const EpochSampler sampler(/*seed=*/1, dataset->train.count, ranks, batch);
  if (sampler.steps_per_epoch() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a global batch of ", batch * ranks, " from ", dataset->train.count, " images"));
  }
  std::vector<double> times;
  std::barrier barrier(ranks);
  LENET_RETURN_IF_ERROR(RunRanks(ranks, [&](int rank) -> absl::Status {
    EngineOptions engine_options = {.net = &net,
                                    .dataset = dataset,
                                    .batch_size = batch,
                                    .optimizer = {.momentum = 0.9, .nesterov = true},
                                    .clip_norm = options.clip_norm,
                                    .precision = options.precision == "tf32" ? Precision::kTf32 : Precision::kFp32};
    const auto run = [&]() -> absl::Status {
      LENET_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, group->NewEngine(rank, engine_options));
      LENET_RETURN_IF_ERROR(engine->WriteParameters(parameters));
      LENET_RETURN_IF_ERROR(engine->Broadcast());
      LENET_RETURN_IF_ERROR(engine->WarmUp());
      if (rank == 0) *engine_name = std::string(engine->name());
      int64_t step = 0;
      for (int r = -1; r < options.repeat; ++r) {  // the first one warms up
        barrier.arrive_and_wait();
        const Clock::time_point start = Clock::now();
        LENET_RETURN_IF_ERROR(RunSteps(engine.get(), sampler, rank, batch, step, options.steps, options.chunk));
        barrier.arrive_and_wait();
        const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
        if (rank == 0 && r >= 0) times.push_back(elapsed.count() / options.steps);
        step += options.steps;
      }
      return absl::OkStatus();
    };
    absl::Status status = run();
    if (!status.ok()) {
      group->Abort(status.message());
      barrier.arrive_and_drop();
    }
    return status;
  }));
  std::sort(times.begin(), times.end());
  return times;
}

absl::StatusOr<std::shared_ptr<const Dataset>> LoadData(const Options& options) {
  if (options.data.empty()) return SyntheticDataset(/*train_count=*/60000, /*test_count=*/100);
  const std::filesystem::path path = std::filesystem::path(options.data).lexically_normal();
  DatasetCatalog catalog({path.parent_path()});
  return catalog.Load(path.filename().string());
}

absl::Status Run(const Options& options) {
  LENET_ASSIGN_OR_RETURN(const SelectedBackend selected, SelectBackend(PluginFolder(options.plugins), options.backend));
  Backend* backend = selected.backend.get();
  LENET_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> dataset, LoadData(options));
  LENET_ASSIGN_OR_RETURN(NetSpec spec, PresetNet(options.net, dataset->train.shape, dataset->classes));
  LENET_ASSIGN_OR_RETURN(const Net net, Net::Create(std::move(spec)));
  const DeviceInfo& device = backend->devices().front();
  if (!options.json) {
    std::printf("%zu x %s (%s), %s, data %s, %d steps a repeat, %d repeats\n", backend->devices().size(),
                device.name.c_str(), device.kind.c_str(), options.net.c_str(), dataset->name.c_str(), options.steps,
                options.repeat);
    std::printf("%5s %6s %10s %23s %9s %12s  engine\n", "ranks", "batch", "us/step", "quartiles", "least", "images/s");
  }
  for (const int ranks : options.ranks) {
    for (const int batch : options.batches) {
      std::string engine;
      LENET_ASSIGN_OR_RETURN(const std::vector<double> times,
                             Measure(options, backend, net, dataset, batch, ranks, &engine));
      const double median = times[times.size() / 2];
      const double low = times[times.size() / 4];
      const double high = times[times.size() * 3 / 4];
      const double images = batch * ranks / median * 1e6;
      if (options.json) {
        std::printf(
            "{\"backend\":\"%s\",\"device\":\"%s\",\"kind\":\"%s\",\"engine\":\"%s\",\"net\":\"%s\",\"ranks\":%d,"
            "\"batch\":%d,\"us_per_step\":%.2f,\"low\":%.2f,\"high\":%.2f,\"least\":%.2f,\"images_per_second\":%.0f}\n",
            std::string(backend->name()).c_str(), device.name.c_str(), device.kind.c_str(), engine.c_str(),
            options.net.c_str(), ranks, batch, median, low, high, times.front(), images);
      } else {
        std::printf("%5d %6d %10.1f %11.1f %11.1f %9.1f %12.0f  %s\n", ranks, batch, median, low, high, times.front(),
                    images, engine.c_str());
      }
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lenet

int main(int argc, char** argv) {
  lenet::Options options;
  CLI::App app("Times the training step of a backend.");
  app.add_option("--backend", options.backend, "auto, cpu or cuda")->capture_default_str();
  app.add_option("--plugins", options.plugins, "folder of the backends' libraries");
  app.add_option("--net", options.net, "a preset")->capture_default_str();
  app.add_option("--data", options.data, "DIR/NAME of a data set; without: synthetic 28x28 images");
  app.add_option("--precision", options.precision)->check(CLI::IsMember({"fp32", "tf32"}))->capture_default_str();
  app.add_option("--clip-norm", options.clip_norm, "clips the gradient's 2-norm; 0: off")->capture_default_str();
  app.add_option("--batch", options.batches, "images a rank and step: a list")->delimiter(',');
  app.add_option("--ranks", options.ranks, "a list")->delimiter(',')->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "of a repeat")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--repeat", options.repeat)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--chunk", options.chunk, "steps given to the engine at once")
      ->check(CLI::Range(1, int{lenet::Engine::kMaxChunkSteps}))
      ->capture_default_str();
  app.add_flag("--json", options.json, "one JSON object a line");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = lenet::Run(options);
  if (!status.ok()) std::fprintf(stderr, "bench_step: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
