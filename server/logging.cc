#include "server/logging.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/environment.h"
#include "trainer/base/descriptor.h"
#include "trainer/base/mutex.h"
#include "trainer/base/text.h"

namespace lenet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience(100);  // of one who writes a line
constexpr std::chrono::milliseconds kFlushPatience(500);
constexpr size_t kMaxLines = 4096;

std::atomic<LogLevel> least_level{LogLevel::kInfo};

// One that does not block is waited for.
void WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd wait = {.fd = fd, .events = POLLOUT, .revents = 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

absl::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      break;
  }
  return "error";
}

// As in syslog(3).
int Priority(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return 7;
    case LogLevel::kInfo:
      return 6;
    case LogLevel::kWarning:
      return 4;
    case LogLevel::kError:
      break;
  }
  return 3;
}

// One that nobody can shape: of a request for a job that is not there, it is what the client wrote.
constexpr size_t kMaxJobBytes = 100;

std::string Entry(LogLevel level, absl::string_view message) {
  std::string entry = absl::StrCat("MESSAGE=", message, "\nPRIORITY=", Priority(level),
                                   "\nSYSLOG_IDENTIFIER=lenetd\nTID=", ::gettid(), "\n");
  const LogSubject& subject = ThreadLogSubject();
  if (!subject.job.empty()) absl::StrAppend(&entry, "LENET_JOB=", Shown(subject.job, kMaxJobBytes), "\n");
  if (subject.rank >= 0) absl::StrAppend(&entry, "LENET_RANK=", subject.rank, "\n");
  return entry;
}

// Never destroyed: destructors of static objects may still log.
std::unique_ptr<LineWriter>& StandardError() {
  static auto* const writer = new std::unique_ptr<LineWriter>();
  return *writer;
}

}  // namespace

struct LineWriter::State {
  State(int descriptor, LineFormat line_format)
      : fd(Descriptor{::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)}), format(line_format) {}

  // The body of the thread.
  void Run() ABSL_LOCKS_EXCLUDED(mutex);

  const UniqueDescriptor fd;
  const LineFormat format;
  Mutex mutex;
  CondVar changed;
  std::deque<std::string> lines ABSL_GUARDED_BY(mutex);
  uint64_t added ABSL_GUARDED_BY(mutex) = 0;
  uint64_t written ABSL_GUARDED_BY(mutex) = 0;
  uint64_t dropped ABSL_GUARDED_BY(mutex) = 0;  // since the last line
  bool late ABSL_GUARDED_BY(mutex) = false;     // a line has waited in vain, and not all are written since
  bool stop ABSL_GUARDED_BY(mutex) = false;
  bool has_thread ABSL_GUARDED_BY(mutex) = true;
};

void LineWriter::State::Run() {
  pthread_setname_np(pthread_self(), "log");
  for (;;) {
    std::string line;
    {
      MutexLock lock(&mutex);
      while (lines.empty() && !stop) changed.Wait(&mutex);
      if (stop) return;
      line = std::move(lines.front());
      lines.pop_front();
    }
    WriteAll(fd.get().number, line);
    MutexLock lock(&mutex);
    ++written;
    if (lines.empty() && dropped > 0) {
      lines.push_back(
          LogLine(format, LogLevel::kWarning, absl::StrCat(dropped, " lines were not written: nothing took them")));
      ++added;
      dropped = 0;
    }
    late = late && !lines.empty();
    changed.SignalAll();
  }
}

std::string LogLine(LineFormat format, LogLevel level, absl::string_view message) {
  if (format == LineFormat::kEntry) return Entry(level, message);
  const std::string start =
      format == LineFormat::kJournal
          ? absl::StrCat("<", Priority(level), ">")
          : absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3S%Ez", absl::Now(), absl::LocalTimeZone()), " ");
  return absl::StrCat(start, LevelName(level), " [", ::gettid(), "] ", message, "\n");
}

absl::StatusOr<UniqueDescriptor> ConnectToJournal(const std::string& path) {
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "' has ", path.size(), " bytes, most is ", sizeof(address.sun_path) - 1));
  }
  path.copy(address.sun_path, path.size());
  UniqueDescriptor socket(Descriptor{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)});
  if (!socket || ::connect(socket.get().number, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::UnavailableError(absl::StrCat("'", path, "': ", std::generic_category().message(errno)));
  }
  return socket;
}

bool IsJournal(int fd, absl::string_view journal_stream) {
  struct stat info;
  return ::fstat(fd, &info) == 0 && journal_stream == absl::StrCat(info.st_dev, ":", info.st_ino);
}

LineWriter::LineWriter(int fd, LineFormat format) : state_(std::make_shared<State>(fd, format)) {
  // Signals are for the threads that wait for them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([state = state_] { state->Run(); }).detach();
  } catch (const std::system_error&) {
    MutexLock lock(&state_->mutex);
    state_->has_thread = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LineWriter::~LineWriter() {
  MutexLock lock(&state_->mutex);
  state_->stop = true;
  state_->changed.SignalAll();
}

void LineWriter::Write(std::string line) {
  State& state = *state_;
  MutexLock lock(&state.mutex);
  if (!state.has_thread) {
    WriteAll(state.fd.get().number, line);
    return;
  }
  if (state.lines.size() >= kMaxLines) {
    ++state.dropped;
    return;
  }
  state.lines.push_back(std::move(line));
  const uint64_t own = ++state.added;
  state.changed.SignalAll();
  const Clock::time_point deadline = Clock::now() + kPatience;
  while (!state.late && state.written < own) {
    if (!state.changed.WaitUntil(&state.mutex, deadline)) state.late = state.written < own;
  }
}

bool LineWriter::Flush(Clock::time_point deadline) {
  State& state = *state_;
  MutexLock lock(&state.mutex);
  while (state.written < state.added) {
    if (!state.changed.WaitUntil(&state.mutex, deadline)) return state.written == state.added;
  }
  return true;
}

void SetUpLogging(LogLevel level, const std::string& journal) {
  LineFormat format = LineFormat::kTime;
  absl::StatusOr<UniqueDescriptor> socket = absl::UnavailableError("standard error is not the journal");
  if (IsJournal(STDERR_FILENO, Environment("JOURNAL_STREAM"))) {
    socket = ConnectToJournal(journal);
    format = socket.ok() ? LineFormat::kEntry : LineFormat::kJournal;
  }
  SetLogLevel(level);
  StandardError() = std::make_unique<LineWriter>(socket.ok() ? socket->get().number : STDERR_FILENO, format);
  SetLogSink([format, writer = StandardError().get()](LogLevel line_level, absl::string_view message) {
    if (line_level >= least_level) writer->Write(LogLine(format, line_level, message));
  });
}

void SetLogLevel(LogLevel level) { least_level = level; }

void FlushLog() {
  if (StandardError() != nullptr) StandardError()->Flush(Clock::now() + kFlushPatience);
}

}  // namespace lenet
