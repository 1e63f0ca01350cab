// Streams the losses of a running job, at full resolution, to subscribers of a lenetd of its own, and measures what
// they cost the training, how late the losses come, and what the daemon spends on them. One more subscriber opens its
// stream and reads nothing until the job is over. Fails if a subscriber misses a loss, or gets one twice or out of
// order.

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "lenet/v1/training_service.grpc.pb.h"
#include "tests/bench/log_witness.h"
#include "tests/support/dataset_files.h"
#include "tests/support/synthetic_data.h"
#include "tests/support/temp_folder.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;

constexpr char kDataset[] = "bench";
constexpr absl::Duration kPatience = absl::Seconds(120);

struct Options {
  std::string backend = "paced";
  std::string lenetd;
  std::string plugins;
  std::vector<int> subscribers = {1, 10, 100};
  int ranks = 2;
  int batch = 8;
  double rate = 50'500;  // 50,000 of training, as devices rest where epochs meet
  double seconds = 5;
  int repeats = 5;
  int threads = 2;
};

absl::Status FromGrpc(const grpc::Status& status, absl::string_view call) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(call, ": ", status.error_message()));
}

// CPU time of a process so far, all threads.
double CpuSeconds(clockid_t clock) {
  timespec time = {};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The folder that this program lies in.
fs::path OwnFolder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

// Installed, or of the build tree.
fs::path FindLenetd() {
  const fs::path installed = OwnFolder().parent_path() / "bin" / "lenetd";
  return fs::exists(installed) ? installed : OwnFolder() / ".." / ".." / "server" / "lenetd";
}

// lenetd in a process of its own, until the destructor ends it.
class Daemon {
 public:
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Options& options);
  ~Daemon() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  const std::string& address() const { return address_; }
  double cpu_seconds() const { return CpuSeconds(clock_); }

 private:
  Daemon() = default;

  TempFolder folder_;
  pid_t pid_ = 0;
  clockid_t clock_ = CLOCK_PROCESS_CPUTIME_ID;
  std::string address_;
};

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Options& options) {
  std::unique_ptr<Daemon> daemon(new Daemon);
  const fs::path& folder = daemon->folder_.path();
  if (!WriteDataset(folder / "data" / kDataset, *SyntheticDataset(60'000, 1'000))) {
    return absl::UnavailableError(absl::StrCat("cannot write a data set below ", folder.string()));
  }
  const bool paced = options.backend == "paced";
  const fs::path lenetd = options.lenetd.empty() ? FindLenetd() : fs::path(options.lenetd);
  const fs::path port_file = folder / "address";
  std::vector<std::string> arguments = {
      lenetd,       "--listen",         "127.0.0.1:0", "--port-file",    port_file,
      "--data-dir", folder / "data",    "--state-dir", folder / "state", "--log-level",
      "warning",    "--metrics-listen", "off",         "--backend",      paced ? "cpu" : options.backend};
  const std::string plugins = paced ? (OwnFolder() / "paced").string() : options.plugins;
  if (!plugins.empty()) arguments.insert(arguments.end(), {"--plugin-dir", plugins});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string rate = absl::StrCat(options.rate);

  daemon->pid_ = ::fork();
  if (daemon->pid_ < 0) return absl::UnavailableError("cannot start a process");
  if (daemon->pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::setenv("LENET_PACED_RATE", rate.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): the one thread after a fork
    ::execv(argv[0], argv.data());
    std::perror(argv[0]);
    ::_exit(127);
  }
  ::clock_getcpuclockid(daemon->pid_, &daemon->clock_);
  const absl::Time deadline = absl::Now() + kPatience;
  while (!(std::ifstream(port_file) >> daemon->address_)) {
    if (::waitpid(daemon->pid_, nullptr, WNOHANG) != 0) {
      daemon->pid_ = 0;
      return absl::UnavailableError(absl::StrCat(lenetd.string(), " ended"));
    }
    if (absl::Now() > deadline) return absl::DeadlineExceededError(absl::StrCat(lenetd.string(), " does not serve"));
    absl::SleepFor(absl::Milliseconds(10));
  }
  return daemon;
}

// With a connection of its own.
std::unique_ptr<v1::TrainingService::Stub> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  channel->WaitForConnected(absl::ToChronoTime(absl::Now() + kPatience));
  return v1::TrainingService::NewStub(channel);
}

v1::StreamMetricsRequest WholeLog(const std::string& job_id) {
  v1::StreamMetricsRequest request;
  request.set_job_id(job_id);
  return request;
}

// Reads a log as it grows, on the thread of its completion queue.
class Subscriber {
 public:
  Subscriber(const std::string& address, int ranks) : stub_(Connect(address)), witness_(ranks) {}

  void Open(const std::string& job_id, absl::Time deadline, grpc::CompletionQueue* queue) {
    context_.set_deadline(absl::ToChronoTime(deadline));
    reader_ = stub_->AsyncStreamMetrics(&context_, WholeLog(job_id), queue, this);
  }

  // False if it was the last one.
  bool OnEvent(bool ok) {
    if (finishing_) return false;
    if (ok && opened_) witness_.Take(response_, absl::Now());
    if (ok) {
      opened_ = true;
      reader_->Read(&response_, this);
    } else {
      finishing_ = true;
      reader_->Finish(&status_, this);
    }
    return true;
  }

  const grpc::Status& status() const { return status_; }
  const LogWitness& witness() const { return witness_; }

 private:
  const std::unique_ptr<v1::TrainingService::Stub> stub_;
  LogWitness witness_;
  grpc::ClientContext context_;
  v1::StreamMetricsResponse response_;
  grpc::Status status_;
  bool opened_ = false;
  bool finishing_ = false;
  std::unique_ptr<grpc::ClientAsyncReader<v1::StreamMetricsResponse>> reader_;
};

// Several subscribers on one thread.
void ReadAll(std::span<const std::unique_ptr<Subscriber>> subscribers, const std::string& job_id, absl::Time deadline) {
  grpc::CompletionQueue queue;
  for (const auto& subscriber : subscribers) subscriber->Open(job_id, deadline, &queue);
  void* tag = nullptr;
  bool ok = false;
  for (size_t left = subscribers.size(); left > 0 && queue.Next(&tag, &ok);) {
    if (!static_cast<Subscriber*>(tag)->OnEvent(ok)) --left;
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) continue;
}

// One job's numbers.
struct Sample {
  double steps_per_second = 0;
  double daemon_cpu = 0;  // seconds a second of training
  double readers_cpu = 0;
  int64_t lost = 0;
  absl::Status whole;         // or what was wrong first
  std::vector<float> delays;  // milliseconds

  void Judge(const LogWitness& reader, const LogWitness& reference) {
    lost += reader.lost();
    whole.Update(reader.Check());
    if (reader.losses() != reference.losses() || reader.sum() != reference.sum()) {
      whole.Update(absl::DataLossError("two readers of one log have got different losses"));
    }
  }
};

class Bench {
 public:
  Bench(const Options& options, const Daemon& daemon)
      : options_(options), daemon_(daemon), stub_(Connect(daemon.address())) {}

  absl::StatusOr<Sample> Measure(int count);

 private:
  absl::StatusOr<std::string> StartJob();
  absl::Status AwaitEnd(const std::string& job_id);

  const Options& options_;
  const Daemon& daemon_;
  const std::unique_ptr<v1::TrainingService::Stub> stub_;
};

absl::StatusOr<std::string> Bench::StartJob() {
  v1::StartRequest request;
  v1::TrainingSpec& spec = *request.mutable_spec();
  spec.set_dataset(kDataset);
  spec.set_ranks(options_.ranks);
  spec.set_batch_size(options_.batch);
  spec.set_max_steps(int64_t{1} << 40);
  spec.set_max_duration(options_.seconds);
  spec.set_evaluate_every_epochs(0);
  spec.mutable_schedule()->set_kind(v1::Schedule::CONSTANT);
  grpc::ClientContext context;
  v1::StartResponse response;
  LENET_RETURN_IF_ERROR(FromGrpc(stub_->Start(&context, request, &response), "Start"));
  return response.job().id();
}

absl::Status Bench::AwaitEnd(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  v1::GetJobResponse response;
  const absl::Time deadline = absl::Now() + absl::Seconds(options_.seconds) + kPatience;
  while (!response.job().has_ended_at()) {
    if (absl::Now() > deadline) return absl::DeadlineExceededError("the job does not end");
    absl::SleepFor(absl::Milliseconds(50));
    grpc::ClientContext context;
    LENET_RETURN_IF_ERROR(FromGrpc(stub_->GetJob(&context, request, &response), "GetJob"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Sample> Bench::Measure(int count) {
  std::vector<std::unique_ptr<Subscriber>> subscribers;
  for (int i = 0; i < count; ++i)
    subscribers.push_back(std::make_unique<Subscriber>(daemon_.address(), options_.ranks));
  const auto stalled_stub = Connect(daemon_.address());
  const absl::Time deadline = absl::Now() + absl::Seconds(options_.seconds) + kPatience;

  const double daemon_before = daemon_.cpu_seconds();
  const double own_before = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
  LENET_ASSIGN_OR_RETURN(const std::string job_id, StartJob());
  grpc::ClientContext stalled_context;
  stalled_context.set_deadline(absl::ToChronoTime(deadline));
  std::unique_ptr<grpc::ClientReader<v1::StreamMetricsResponse>> stalled;
  if (count > 0) {
    std::vector<std::thread> threads;
    const size_t share =
        (subscribers.size() + static_cast<size_t>(options_.threads) - 1) / static_cast<size_t>(options_.threads);
    for (size_t first = 0; first < subscribers.size(); first += share) {
      const auto part = std::span(subscribers).subspan(first, std::min(share, subscribers.size() - first));
      threads.emplace_back([part, &job_id, deadline] { ReadAll(part, job_id, deadline); });
    }
    stalled = stalled_stub->StreamMetrics(&stalled_context, WholeLog(job_id));
    for (std::thread& thread : threads) thread.join();
  } else {
    LENET_RETURN_IF_ERROR(AwaitEnd(job_id));
    stalled = stalled_stub->StreamMetrics(&stalled_context, WholeLog(job_id));
  }
  Sample sample = {.daemon_cpu = daemon_.cpu_seconds() - daemon_before,
                   .readers_cpu = CpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - own_before};

  LogWitness log(options_.ranks);
  v1::StreamMetricsResponse response;
  while (stalled->Read(&response)) log.Take(response, absl::Now());
  LENET_RETURN_IF_ERROR(FromGrpc(stalled->Finish(), "StreamMetrics of the reader that stalled"));
  sample.Judge(log, log);
  sample.steps_per_second = static_cast<double>(log.steps()) / log.seconds();
  sample.daemon_cpu /= log.seconds();
  sample.readers_cpu /= log.seconds();
  for (const auto& subscriber : subscribers) {
    const LogWitness& witness = subscriber->witness();
    LENET_RETURN_IF_ERROR(FromGrpc(subscriber->status(), "StreamMetrics"));
    sample.Judge(witness, log);
    sample.delays.insert(sample.delays.end(), witness.delays().begin(), witness.delays().end());
  }
  v1::DeleteJobRequest forget;
  forget.set_job_id(job_id);
  v1::DeleteJobResponse forgotten;
  grpc::ClientContext context;
  LENET_RETURN_IF_ERROR(FromGrpc(stub_->DeleteJob(&context, forget, &forgotten), "DeleteJob"));
  return sample;
}

template <typename T>
T Quantile(std::vector<T> values, double share) {
  if (values.empty()) return 0;
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

double Median(const std::vector<Sample>& samples, double Sample::*member) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(sample.*member);
  return Quantile(std::move(values), 0.5);
}

absl::Status Run(const Options& options) {
  LENET_ASSIGN_OR_RETURN(const std::unique_ptr<Daemon> daemon, Daemon::Start(options));
  Bench bench(options, *daemon);
  std::vector<int> counts = {0};
  counts.insert(counts.end(), options.subscribers.begin(), options.subscribers.end());
  // What only a first job has to do.
  LENET_RETURN_IF_ERROR(bench.Measure(0).status());
  std::vector<std::vector<Sample>> samples(counts.size());
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    for (size_t i = 0; i < counts.size(); ++i) {
      LENET_ASSIGN_OR_RETURN(samples[i].emplace_back(), bench.Measure(counts[i]));
    }
  }

  std::printf("%s, %d ranks, batch %d", options.backend.c_str(), options.ranks, options.batch);
  if (options.backend == "paced") std::printf(", devices that make %.0f steps/s", options.rate);
  std::printf("; %d jobs of %.0f s each; CPU: seconds a second of training; delay: from the record before\n",
              options.repeats, options.seconds);
  std::printf("%11s %9s %9s %9s %8s %10s %8s %8s %8s %8s %8s %5s\n", "subscribers", "steps/s", "least", "most",
              "slower %", "losses/s", "p50 ms", "p99 ms", "most ms", "daemon", "readers", "lost");
  const double alone = Median(samples[0], &Sample::steps_per_second);
  absl::Status whole;
  for (size_t i = 0; i < counts.size(); ++i) {
    std::vector<double> rates;
    std::vector<float> delays;
    int64_t lost = 0;
    for (const Sample& sample : samples[i]) {
      rates.push_back(sample.steps_per_second);
      delays.insert(delays.end(), sample.delays.begin(), sample.delays.end());
      lost += sample.lost;
      whole.Update(sample.whole);
    }
    const double rate = Median(samples[i], &Sample::steps_per_second);
    std::printf("%11d %9.0f %9.0f %9.0f %8.2f %10.0f %8.1f %8.1f %8.1f %8.3f %8.3f %5lld\n", counts[i], rate,
                Quantile(rates, 0), Quantile(rates, 1), 100 * (1 - rate / alone), rate * options.ranks * counts[i],
                Quantile(delays, 0.5), Quantile(delays, 0.99), Quantile(delays, 1),
                Median(samples[i], &Sample::daemon_cpu), Median(samples[i], &Sample::readers_cpu),
                static_cast<long long>(lost));
  }
  return whole;
}

}  // namespace
}  // namespace lenet

int main(int argc, char** argv) {
  lenet::Options options;
  CLI::App app("Measures what subscribers to the losses of a running job cost, and how late they get them.");
  app.add_option("--backend", options.backend,
                 "paced: devices that compute nothing and keep time; auto, cpu, cuda: those train")
      ->check(CLI::IsMember({"paced", "auto", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--lenetd", options.lenetd, "the daemon; without: the one that came with this program");
  app.add_option("--plugins", options.plugins, "folder of the backends' libraries; not for paced");
  app.add_option("--subscribers", options.subscribers, "a list")->delimiter(',')->check(CLI::PositiveNumber);
  app.add_option("--ranks", options.ranks)->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--batch", options.batch, "images a rank and step")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--rate", options.rate, "steps a second of the paced devices")
      ->check(CLI::Range(1.0, 1e9))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "length of a job")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--repeat", options.repeats, "jobs for each number of subscribers, in turn")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", options.threads, "that read the streams")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  absl::Status status;
  try {
    status = lenet::Run(options);
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  if (!status.ok()) std::fprintf(stderr, "bench_stream: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
