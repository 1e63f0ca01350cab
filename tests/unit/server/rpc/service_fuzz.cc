// libFuzzer's entry to the service itself: the bytes are a script of calls, made as gRPC would, on a job manager whose
// devices are fake. Whatever is called, every call is answered with a status of proto/README.md, a job that was
// accepted can be read back, and in the end all jobs can be stopped and deleted. With LENET_JOBS_RUN in the environment
// jobs run, and a script takes some 50 ms; without it they wait for devices that one has for good.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/stubs/logging.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/protobuf/util/message_differencer.h"
#include "lenet/v1/training_service.grpc.pb.h"
#include "server/job/convert.h"
#include "server/job/job_id.h"
#include "server/rpc/training_service.h"
#include "server/store/job_state.h"
#include "tests/support/server_under_test.h"
#include "trainer/base/log.h"
#include "trainer/base/text.h"

namespace {

using namespace lenet;  // NOLINT(google-build-using-namespace): a file of nothing else
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kMaxCalls = 8;

void Require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "a call broke its promise: %s\n", what.c_str());
  std::abort();
}

// The script, read from its beginning; beyond its end there are zeros.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  // Below `count`, which is not 0.
  size_t Index(size_t count) { return Byte() % count; }
  std::string Text(size_t size) {
    size = std::min(size, size_);
    std::string text(reinterpret_cast<const char*>(data_), size);
    data_ += size;
    size_ -= size;
    return text;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Changes of messages by what their descriptors say.
class Mutator {
 public:
  Mutator(Bytes* bytes, const std::vector<std::string>* jobs) : bytes_(bytes), jobs_(jobs) {}

  void Mutate(Message* message) {
    const google::protobuf::Descriptor& type = *message->GetDescriptor();
    const Reflection& reflection = *message->GetReflection();
    const size_t choice = bytes_->Index(static_cast<size_t>(type.field_count()) + 1);
    if (choice == static_cast<size_t>(type.field_count())) {
      reflection.MutableUnknownFields(message)->AddVarint(1000 + bytes_->Byte(), 1);
      return;
    }
    const FieldDescriptor* const field = type.field(static_cast<int>(choice));
    const uint8_t how = bytes_->Byte();
    if (how % 8 == 7) return reflection.ClearField(message, field);
    if (!field->is_repeated()) {
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return Set(message, field);
      return Mutate(reflection.MutableMessage(message, field));
    }
    for (int i = how % 8; i >= 0; --i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        Mutate(reflection.AddMessage(message, field));
      } else {
        Set(message, field);
      }
    }
  }

  std::string JobId() { return jobs_->empty() ? Text() : (*jobs_)[bytes_->Index(jobs_->size())]; }

  std::string Text() {
    static const std::vector<std::string>* const texts = new std::vector<std::string>{"",
                                                                                      "small",
                                                                                      "tiny-images",
                                                                                      "broken",
                                                                                      "bad-labels",
                                                                                      "../../etc/passwd",
                                                                                      "/etc/passwd",
                                                                                      std::string("a\0b", 3),
                                                                                      std::string(65, 'x'),
                                                                                      std::string(129, 'y'),
                                                                                      std::string(5000, 'z'),
                                                                                      "\x1b[31m",
                                                                                      "\xff\xfe",
                                                                                      "\u202e",
                                                                                      "lenet",
                                                                                      "lenet5-classic",
                                                                                      "lenet-caffe",
                                                                                      "once",
                                                                                      "0000000000000000",
                                                                                      "zzzzzzzzzzzzzzzz",
                                                                                      "a/b",
                                                                                      ".",
                                                                                      "a\nb"};
    const size_t choice = bytes_->Index(texts->size() + 2);
    if (choice < texts->size()) return (*texts)[choice];
    if (choice == texts->size() && !jobs_->empty()) return JobId();
    return bytes_->Text(bytes_->Byte());
  }

 private:
  int64_t Integer() {
    static constexpr int64_t kIntegers[] = {0,   1,   2,   3,    -1,   5,         16,        32,        64,
                                            128, 640, 641, 1000, 1001, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    const size_t choice = bytes_->Index(std::size(kIntegers) + 1);
    return choice < std::size(kIntegers) ? kIntegers[choice] : bytes_->Byte();
  }

  double Real() {
    static constexpr double kReals[] = {0,
                                        -0.0,
                                        1,
                                        0.5,
                                        1e-3,
                                        -1,
                                        1e300,
                                        std::numeric_limits<double>::denorm_min(),
                                        std::numeric_limits<double>::infinity(),
                                        std::numeric_limits<double>::quiet_NaN(),
                                        0.999};
    const size_t choice = bytes_->Index(std::size(kReals) + 1);
    return choice < std::size(kReals) ? kReals[choice] : bytes_->Byte() / 16.0;
  }

  // Sets a field, or adds to it.
  void Set(Message* message, const FieldDescriptor* field) {
    const Reflection& reflection = *message->GetReflection();
    const auto put = [&](auto set, auto add, auto value) {
      (reflection.*(field->is_repeated() ? add : set))(message, field, value);
    };
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return put(&Reflection::SetInt32, &Reflection::AddInt32, static_cast<int32_t>(Integer()));
      case FieldDescriptor::CPPTYPE_INT64:
        return put(&Reflection::SetInt64, &Reflection::AddInt64, Integer());
      case FieldDescriptor::CPPTYPE_UINT32:
        return put(&Reflection::SetUInt32, &Reflection::AddUInt32, static_cast<uint32_t>(Integer()));
      case FieldDescriptor::CPPTYPE_UINT64:
        return put(&Reflection::SetUInt64, &Reflection::AddUInt64, static_cast<uint64_t>(Integer()));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return put(&Reflection::SetDouble, &Reflection::AddDouble, Real());
      case FieldDescriptor::CPPTYPE_FLOAT:
        return put(&Reflection::SetFloat, &Reflection::AddFloat, static_cast<float>(Real()));
      case FieldDescriptor::CPPTYPE_BOOL:
        return put(&Reflection::SetBool, &Reflection::AddBool, bytes_->Byte() % 2 == 1);
      case FieldDescriptor::CPPTYPE_ENUM:
        return put(&Reflection::SetEnumValue, &Reflection::AddEnumValue, static_cast<int>(bytes_->Index(12)) - 1);
      case FieldDescriptor::CPPTYPE_STRING:
        if (field->is_repeated()) return reflection.AddString(message, field, Text());
        return reflection.SetString(message, field, field->name() == "job_id" ? JobId() : Text());
      case FieldDescriptor::CPPTYPE_MESSAGE:
        break;
    }
  }

  Bytes* const bytes_;
  const std::vector<std::string>* const jobs_;
};

// What gRPC's call objects tell the script's thread, from whichever thread answers.
class Answer {
 public:
  void Finished(grpc::Status status) {
    MutexLock lock(&mutex_);
    Require(!finished_, "a second status");
    status_ = std::move(status);
    finished_ = true;
    changed_.SignalAll();
  }
  void Written(std::string message) {
    MutexLock lock(&mutex_);
    Require(!written_ && !finished_, "a message before the one before has left, or after the status");
    message_ = std::move(message);
    written_ = true;
    changed_.SignalAll();
  }
  // Waits for the next of both. False at the status; else a message has left.
  bool Next(std::string* message) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    MutexLock lock(&mutex_);
    while (!written_ && !finished_) Require(changed_.WaitUntil(&mutex_, deadline), "an answer");
    if (!written_) return false;
    *message = std::move(message_);
    written_ = false;
    return true;
  }
  grpc::Status status() {
    MutexLock lock(&mutex_);
    return status_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool written_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  std::string message_ ABSL_GUARDED_BY(mutex_);
};

class Unary : public grpc::ServerCallbackUnary {
 public:
  // Waits for the status; a call that is cancelled may have one all the same.
  grpc::Status Run(grpc::ServerUnaryReactor* reactor, bool cancel) {
    reactor_ = reactor;
    BindReactor(reactor);
    if (cancel) reactor->OnCancel();
    std::string none;
    Require(!answer_.Next(&none), "a status");
    grpc::Status status = answer_.status();
    reactor->OnDone();
    return status;
  }

  void Finish(grpc::Status status) override { answer_.Finished(std::move(status)); }
  void SendInitialMetadata() override {}

 private:
  grpc::internal::ServerReactor* reactor() override { return reactor_; }
  void CallOnDone() override {}

  grpc::ServerUnaryReactor* reactor_ = nullptr;
  Answer answer_;
};

template <typename Response>
class Writer : public grpc::ServerCallbackWriter<Response> {
 public:
  // Reads at most so many messages, then cancels.
  grpc::Status Run(grpc::ServerWriteReactor<Response>* reactor, int messages) {
    reactor_ = reactor;
    this->BindReactor(reactor);
    bool cancelled = false;
    std::string message;
    for (;;) {
      if (messages == 0 && !cancelled) {
        cancelled = true;
        reactor->OnCancel();
      }
      if (!answer_.Next(&message)) break;
      Response response;
      Require(response.ParseFromString(message), "a message of its type");
      if (messages > 0) --messages;
      reactor->OnWriteDone(!cancelled);
    }
    grpc::Status status = answer_.status();
    reactor->OnDone();
    return status;
  }

  void Finish(grpc::Status status) override { answer_.Finished(std::move(status)); }
  void SendInitialMetadata() override {}
  void Write(const Response* message, grpc::WriteOptions) override { answer_.Written(message->SerializeAsString()); }
  void WriteAndFinish(const Response*, grpc::WriteOptions, grpc::Status) override { std::abort(); }

 private:
  grpc::internal::ServerReactor* reactor() override { return reactor_; }
  void CallOnDone() override {}

  grpc::ServerWriteReactor<Response>* reactor_ = nullptr;
  Answer answer_;
};

void CheckStatus(const grpc::Status& status, bool cancelled) {
  const grpc::StatusCode code = status.error_code();
  Require(code == grpc::StatusCode::OK || code == grpc::StatusCode::INVALID_ARGUMENT ||
              code == grpc::StatusCode::NOT_FOUND || code == grpc::StatusCode::ALREADY_EXISTS ||
              code == grpc::StatusCode::FAILED_PRECONDITION || code == grpc::StatusCode::RESOURCE_EXHAUSTED ||
              code == grpc::StatusCode::PERMISSION_DENIED || (cancelled && code == grpc::StatusCode::CANCELLED),
          "the status " + std::to_string(code) + " " + status.error_message());
  if (code == grpc::StatusCode::OK || code == grpc::StatusCode::CANCELLED) return;
  Require(!status.error_message().empty(), "a reason");
  Require(ValidUtf8(status.error_message()) == status.error_message(), "a reason that a status can carry");
}

// Lives as long as the process.
class Server {
 public:
  explicit Server(bool jobs_run) : server_(Options(jobs_run)), calls_({}), executor_(2, 100), hub_(10) {
    for (const char* role : {"admin", "submitter", "viewer"}) {
      const std::filesystem::path file = server_.folder() / role;
      std::ofstream(file) << "anyone " << role << "\n";
      access_.push_back(std::make_unique<Access>());
      Require(access_.back()->Load(file).ok(), "rules");
      services_.push_back(std::make_unique<TrainingService>(
          ServerIdentity{.version = "1", .started_at = absl::Now()}, access_.back().get(), &users_, &server_.manager(),
          &server_.backend(), &server_.catalog(), &hub_, &executor_, &calls_));
    }
    server_.manager().OnWritten([this] { hub_.Wake(); });
    if (jobs_run) return;
    Require(server_.manager().Start(ServerUnderTest::Request(0, 2)).ok(), "a job that has the devices");
    jobs_before_ = 1;
  }

  void Run(Bytes bytes) {
    std::vector<std::string> jobs;
    for (int i = 0; i < kMaxCalls && !bytes.empty(); ++i) Call(&bytes, &jobs);
    EndAll(jobs);
  }

 private:
  static ServerUnderTestOptions Options(bool jobs_run) {
    ServerUnderTestOptions options = Paced();
    if (!jobs_run) options.script = [](int) { return FakeScript{.step_time = std::chrono::hours(1)}; };
    options.manager.limits = {.max_queued = 3, .max_jobs_per_client = 4};
    return options;
  }

  template <typename Request, typename Response>
  using UnaryMethod = grpc::ServerUnaryReactor* (TrainingService::*)(grpc::CallbackServerContext*, const Request*,
                                                                     Response*);
  template <typename Request, typename Response>
  using StreamMethod = grpc::ServerWriteReactor<Response>* (TrainingService::*)(grpc::CallbackServerContext*,
                                                                                const Request*);

  // As a client would send it and the server would get it; false if that is no message of its type.
  template <typename Request>
  bool MakeRequest(Bytes* bytes, const std::vector<std::string>& jobs, Request* request) {
    const uint8_t changes = bytes->Byte();
    if (changes % 16 == 15) return request->ParseFromString(bytes->Text(bytes->Byte()));
    Mutator mutator(bytes, &jobs);
    for (int i = changes % 4; i > 0; --i) mutator.Mutate(request);
    const std::string sent = request->SerializePartialAsString();
    return request->ParseFromString(sent);
  }

  template <typename Request, typename Response>
  grpc::Status Answered(TrainingService* service, UnaryMethod<Request, Response> method, const Request& request,
                        Response* response, bool cancel = false) {
    grpc::CallbackServerContext context;
    Unary call;
    return call.Run((service->*method)(&context, &request, response), cancel);
  }

  // A call about a job, or about nothing.
  template <typename Request, typename Response>
  void CallUnary(Bytes* bytes, const std::vector<std::string>& jobs, TrainingService* service,
                 UnaryMethod<Request, Response> method) {
    Request request;
    if (const FieldDescriptor* const id = Request::descriptor()->FindFieldByName("job_id"); id != nullptr) {
      request.GetReflection()->SetString(&request, id, Mutator(bytes, &jobs).JobId());
    }
    if (!MakeRequest(bytes, jobs, &request)) return;
    const bool cancel = bytes->Byte() % 4 == 3;
    Response response;
    CheckStatus(Answered(service, method, request, &response, cancel), cancel);
    Response read;
    Require(read.ParseFromString(response.SerializeAsString()), "a response that a client can read");
  }

  template <typename Request, typename Response>
  void CallStream(Bytes* bytes, const std::vector<std::string>& jobs, TrainingService* service,
                  StreamMethod<Request, Response> method) {
    Request request;
    if (const FieldDescriptor* const id = Request::descriptor()->FindFieldByName("job_id"); id != nullptr) {
      request.GetReflection()->SetString(&request, id, Mutator(bytes, &jobs).JobId());
    }
    if (!MakeRequest(bytes, jobs, &request)) return;
    // Where nothing needs to come, none is waited for.
    const bool sure = Request::descriptor()->field_count() == 0;
    grpc::CallbackServerContext context;
    Writer<Response> call;
    CheckStatus(call.Run((service->*method)(&context, &request), sure ? static_cast<int>(bytes->Index(2)) : 0), true);
  }

  void CallStart(Bytes* bytes, std::vector<std::string>* jobs, TrainingService* service) {
    const uint8_t kind = bytes->Byte();
    v1::StartRequest request = ServerUnderTest::Request(kind % 4, kind / 4 % 2 + 1);
    if (kind / 8 % 4 == 3 && !jobs->empty()) request.mutable_resume_from()->set_job_id(Mutator(bytes, jobs).JobId());
    if (!MakeRequest(bytes, *jobs, &request)) return;
    v1::StartResponse response;
    const grpc::Status status = Answered(service, &TrainingService::Start, request, &response);
    // A checkpoint may go while its file is being opened.
    if (status.error_code() == grpc::StatusCode::DATA_LOSS && request.has_resume_from()) return;
    CheckStatus(status, false);
    if (!status.ok()) return;
    const v1::Job& job = response.job();
    Require(IsJobId(job.id()), "an id");
    Require(google::protobuf::util::MessageDifferencer::Equals(job.spec(), request.spec()), "the spec as it was given");
    Require(request.GetReflection()->GetUnknownFields(request).empty() && ToTrainSpec(job.spec()).ok(),
            "a spec that is valid");
    Require(job.resolved().ranks() >= 1 && job.resolved().total_steps() >= 1, "what the spec comes to");
    v1::GetJobRequest get;
    get.set_job_id(job.id());
    v1::GetJobResponse got;
    Require(Answered(services_.front().get(), &TrainingService::GetJob, get, &got).ok(), "the job, read back");
    Require(got.job().name() == job.name() && got.job().client() == job.client(), "the same job");
    if (std::find(jobs->begin(), jobs->end(), job.id()) == jobs->end()) jobs->push_back(job.id());
  }

  void Call(Bytes* bytes, std::vector<std::string>* jobs) {
    TrainingService* const service = services_[std::min<size_t>(bytes->Index(8), services_.size() - 1)].get();
    switch (bytes->Index(13)) {
      case 0:
      case 1:
        return CallStart(bytes, jobs, services_.front().get());
      case 2:
        return CallStart(bytes, jobs, service);
      case 3:
        return CallUnary(bytes, *jobs, service, &TrainingService::Stop);
      case 4:
        return CallUnary(bytes, *jobs, service, &TrainingService::Pause);
      case 5:
        return CallUnary(bytes, *jobs, service, &TrainingService::Resume);
      case 6:
        return CallUnary(bytes, *jobs, service, &TrainingService::DeleteJob);
      case 7:
        return CallUnary(bytes, *jobs, service, &TrainingService::ListCheckpoints);
      case 8:
        return CallUnary(bytes, *jobs, service, &TrainingService::ListJobs);
      case 9:
        return CallUnary(bytes, *jobs, service, &TrainingService::GetServerInfo);
      case 10:
        if (bytes->Byte() % 4 == 3) return CallUnary(bytes, *jobs, service, &TrainingService::ListDatasets);
        return CallUnary(bytes, *jobs, service, &TrainingService::GetJob);
      case 11:
        return CallStream(bytes, *jobs, service, &TrainingService::StreamMetrics);
      default:
        return CallStream(bytes, *jobs, service, &TrainingService::WatchJobs);
    }
  }

  void EndAll(const std::vector<std::string>& jobs) {
    TrainingService* const admin = services_.front().get();
    for (const std::string& id : jobs) {
      v1::StopRequest stop;
      stop.set_job_id(id);
      stop.set_mode(v1::StopRequest::ABORT);
      stop.set_wait(true);
      v1::StopResponse stopped;
      const grpc::Status status = Answered(admin, &TrainingService::Stop, stop, &stopped);
      if (status.error_code() == grpc::StatusCode::NOT_FOUND) continue;  // the script deleted it
      Require(status.ok() && IsTerminal(stopped.job().state()), "the end of a job: " + status.error_message());
      v1::DeleteJobRequest remove;
      remove.set_job_id(id);
      v1::DeleteJobResponse removed;
      Require(Answered(admin, &TrainingService::DeleteJob, remove, &removed).ok(), "a job can be deleted");
    }
    v1::ListJobsResponse left;
    Require(Answered(admin, &TrainingService::ListJobs, v1::ListJobsRequest(), &left).ok(), "a list");
    Require(left.jobs_size() == jobs_before_, "no job is left");
  }

  int jobs_before_ = 0;
  ServerUnderTest server_;
  CallCounts calls_;
  Executor executor_;
  StreamHub hub_;
  std::vector<std::unique_ptr<Access>> access_;
  Users users_;
  std::vector<std::unique_ptr<TrainingService>> services_;
};

}  // namespace

extern "C" int RunServiceScript(const uint8_t* data, size_t size) {
  // It logs every string that is not UTF-8, and the server every call.
  const google::protobuf::LogSilencer silence;
  static Server* const server = [] {
    SetLogSink([](LogLevel, absl::string_view) {});
    return new Server(std::getenv("LENET_JOBS_RUN") != nullptr);
  }();
  server->Run(Bytes(data, size));
  return 0;
}
