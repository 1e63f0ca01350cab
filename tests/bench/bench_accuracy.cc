// Trains the default job (or one changed by flags) for each data set, rank count and seed, and prints the test accuracy
// of each run, or with --target the time that each takes to reach one.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "trainer/backend/plugin.h"
#include "trainer/base/status.h"
#include "trainer/data/catalog.h"
#include "trainer/train/trainer.h"

namespace lenet {
namespace {

struct Options {
  std::string backend = "auto";
  std::string plugins;
  std::vector<std::string> data;
  std::string net = "lenet";
  std::vector<int> ranks = {1, 2, 4, 8};
  std::vector<int> batches = {64};
  std::vector<uint64_t> seeds = {1, 2, 3};
  std::vector<double> rates;
  std::string optimizer = "sgd";
  std::string schedule = "linear";
  double warmup = TrainSpec().schedule.warmup_fraction;
  float clip_norm = TrainSpec().clip_norm;
  std::string precision = "fp32";
  int epochs = 10;
  double require = 0;
  std::optional<double> target;
};

struct Outcome {
  double accuracy = 0;           // in percent; 0 for one that diverged
  double images_per_second = 0;  // of its last epoch
  double seconds = 0;            // of training, evaluations left out
};

class Quiet : public TrainObserver {
 public:
  void OnRunning(absl::string_view) override {}
  void OnSteps(int, int64_t, std::span<const float>) override {}
  void OnEpoch(const EpochSummary& summary) override {
    outcome_.images_per_second = summary.images_per_second;
    outcome_.seconds += summary.seconds;
  }
  void OnEvaluation(const Evaluation&) override {}
  void OnCheckpoint(const CheckpointSaved&) override {}
  void OnWarning(absl::string_view message) override {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(message.size()), message.data());
  }
  void OnRanksStuck(const std::string& message) override { std::fprintf(stderr, "%s\n", message.c_str()); }
  const Outcome& outcome() const { return outcome_; }

 private:
  Outcome outcome_;
};

absl::StatusOr<std::shared_ptr<const Dataset>> LoadData(const std::string& data) {
  const std::filesystem::path path = std::filesystem::path(data).lexically_normal();
  DatasetCatalog catalog({path.parent_path()});
  return catalog.Load(path.filename().string());
}

absl::StatusOr<std::unique_ptr<RankGroup>> MakeGroup(Backend* backend, int ranks) {
  std::vector<int> devices(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    devices[static_cast<size_t>(rank)] = rank % static_cast<int>(backend->devices().size());
  }
  return backend->NewGroup(devices);
}

absl::StatusOr<Outcome> TrainOnce(const TrainSpec& spec, Backend* backend, std::shared_ptr<const Dataset> dataset,
                                  TrainPlan* plan) {
  TrainJob job;
  LENET_ASSIGN_OR_RETURN(job.plan, PlanTraining(spec, spec.ranks, *dataset));
  *plan = job.plan;
  job.dataset = std::move(dataset);
  LENET_ASSIGN_OR_RETURN(const std::unique_ptr<RankGroup> group, MakeGroup(backend, spec.ranks));
  const StopRequest stop;
  Quiet observer;
  const TrainResult result = Train(job, group.get(), &stop, &observer);
  Outcome outcome = observer.outcome();
  if (result.failure && absl::IsFailedPrecondition(result.failure->status)) return outcome;
  if (result.failure) return result.failure->status;
  outcome.accuracy = 100 * result.evaluation->accuracy();
  return outcome;
}

OptimizerSpec ParseOptimizer(const std::string& name) {
  if (name == "plain-sgd") return {};
  if (name == "adam") return {.kind = OptimizerKind::kAdam};
  if (name == "adamw") return {.kind = OptimizerKind::kAdamW, .weight_decay = 0.01};
  return TrainSpec().optimizer;
}

ScheduleSpec ParseSchedule(const std::string& name, double warmup) {
  ScheduleSpec schedule = {.warmup_fraction = warmup};
  if (name == "linear") schedule.kind = ScheduleKind::kLinear;
  if (name == "cosine") schedule.kind = ScheduleKind::kCosine;
  if (name == "one-cycle") schedule = {.kind = ScheduleKind::kOneCycle};
  return schedule;
}

// One line of the table: all seeds of one set-up. Gives the least accuracy.
absl::StatusOr<double> RunSeeds(const Options& options, TrainSpec spec, Backend* backend,
                                const std::shared_ptr<const Dataset>& dataset) {
  double least = std::numeric_limits<double>::infinity();
  TrainPlan plan;
  Outcome outcome;
  std::string cells;
  for (const uint64_t seed : options.seeds) {
    spec.seed = seed;
    LENET_ASSIGN_OR_RETURN(outcome, TrainOnce(spec, backend, dataset, &plan));
    least = std::min(least, outcome.accuracy);
    char cell[16];
    if (!options.target) {
      std::snprintf(cell, sizeof(cell), " %6.2f", outcome.accuracy);
    } else if (outcome.accuracy >= *options.target) {
      std::snprintf(cell, sizeof(cell), " %6.3f", outcome.seconds);
    } else {
      std::snprintf(cell, sizeof(cell), " %6s", "never");
    }
    cells += cell;
  }
  std::printf("%-14s %5d %6d %7d %8.4f %9.2f %9.0f %s\n", spec.dataset.c_str(), spec.ranks, plan.batch_size,
              plan.global_batch_size, plan.learning_rate, least, outcome.images_per_second, cells.c_str());
  std::fflush(stdout);
  return least;
}

absl::Status Run(const Options& options) {
  LENET_ASSIGN_OR_RETURN(const SelectedBackend selected, SelectBackend(PluginFolder(options.plugins), options.backend));
  Backend* backend = selected.backend.get();
  TrainSpec spec;
  spec.net = options.net;
  spec.epochs = options.epochs;
  spec.precision = options.precision == "tf32" ? Precision::kTf32 : Precision::kFp32;
  spec.optimizer = ParseOptimizer(options.optimizer);
  spec.schedule = ParseSchedule(options.schedule, options.warmup);
  spec.clip_norm = options.clip_norm;
  if (options.target) spec.target_accuracy = *options.target / 100;
  const std::string what =
      options.target ? absl::StrCat("seconds of training to ", *options.target, " %") : "test accuracy in percent";
  std::printf("%zu x %s, %s, %d epochs, %s; by seed: %s\n", backend->devices().size(),
              backend->devices().front().name.c_str(), options.net.c_str(), options.epochs, options.optimizer.c_str(),
              what.c_str());
  std::printf("%-14s %5s %6s %7s %8s %9s %9s  seeds", "data", "ranks", "batch", "global", "lr", "least", "images/s");
  for (const uint64_t seed : options.seeds) std::printf(" %llu", static_cast<unsigned long long>(seed));
  std::printf("\n");

  std::vector<std::optional<double>> rates(options.rates.begin(), options.rates.end());
  if (rates.empty()) rates.push_back(std::nullopt);
  bool reached = true;
  for (const std::string& data : options.data) {
    LENET_ASSIGN_OR_RETURN(const std::shared_ptr<const Dataset> dataset, LoadData(data));
    spec.dataset = dataset->name;
    for (const int ranks : options.ranks) {
      if (!backend->oversubscribable() && ranks > static_cast<int>(backend->devices().size())) {
        std::printf("%-14s %5d: left out, there are fewer devices\n", spec.dataset.c_str(), ranks);
        continue;
      }
      for (const int batch : options.batches) {
        for (const std::optional<double>& rate : rates) {
          spec.ranks = ranks;
          spec.batch_size = batch;
          spec.learning_rate = rate;
          LENET_ASSIGN_OR_RETURN(const double least, RunSeeds(options, spec, backend, dataset));
          reached = reached && least >= options.require;
        }
      }
    }
  }
  return reached ? absl::OkStatus() : absl::OutOfRangeError(absl::StrCat("a run is below ", options.require, " %"));
}

}  // namespace
}  // namespace lenet

int main(int argc, char** argv) {
  lenet::Options options;
  CLI::App app("Measures the test accuracy that jobs reach.");
  app.add_option("--backend", options.backend, "auto, cpu or cuda")->capture_default_str();
  app.add_option("--plugins", options.plugins, "folder of the backends' libraries");
  app.add_option("--data", options.data, "DIR/NAME of a data set: a list")->delimiter(',')->required();
  app.add_option("--net", options.net, "a preset")->capture_default_str();
  app.add_option("--ranks", options.ranks, "a list")->delimiter(',')->check(CLI::PositiveNumber);
  app.add_option("--batch", options.batches, "images a rank and step: a list")->delimiter(',');
  app.add_option("--seeds", options.seeds, "a list")->delimiter(',');
  app.add_option("--lr", options.rates, "learning rates: a list; without: the default of each batch")->delimiter(',');
  app.add_option("--optimizer", options.optimizer, "sgd (with Nesterov momentum), plain-sgd, adam or adamw")
      ->check(CLI::IsMember({"sgd", "plain-sgd", "adam", "adamw"}))
      ->capture_default_str();
  app.add_option("--schedule", options.schedule, "constant, linear, cosine or one-cycle")
      ->check(CLI::IsMember({"constant", "linear", "cosine", "one-cycle"}))
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "share of the steps")->capture_default_str();
  app.add_option("--clip-norm", options.clip_norm, "0: off")->capture_default_str();
  app.add_option("--precision", options.precision)->check(CLI::IsMember({"fp32", "tf32"}))->capture_default_str();
  app.add_option("--epochs", options.epochs)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--target", options.target, "percent: ends a run that reaches it, and prints how long it took");
  app.add_option("--require", options.require, "fail if a run is below this, in percent");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = lenet::Run(options);
  if (!status.ok()) std::fprintf(stderr, "bench_accuracy: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
