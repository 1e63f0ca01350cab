// One line of log, to a sink that the program sets; standard error until then.
#ifndef LENET_TRAINER_BASE_LOG_H_
#define LENET_TRAINER_BASE_LOG_H_

#include <cstddef>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace lenet {

// Of a line's message. With what a sink puts before it, it still goes into a pipe in one piece.
inline constexpr size_t kMaxLogBytes = 4000;

enum class LogLevel { kDebug, kInfo, kWarning, kError };

using LogSink = std::function<void(LogLevel level, absl::string_view message)>;

// Sets the sink of this executable or plug-in (each holds its own). Call it before other threads log. The sink
// must be safe to call from any thread and must not throw.
void SetLogSink(LogSink sink);

// The sink in force, to hand on to a plug-in.
LogSink GetLogSink();

// What the lines of a thread are about, for a sink that keeps it beside the message.
struct LogSubject {
  std::string job;  // its id; empty: none
  int rank = -1;    // -1: none
};

// This thread's, in this executable or plug-in: a sink sees that of the program that set it, also for a plug-in's
// lines.
const LogSubject& ThreadLogSubject();

// Gives this thread another one until it goes.
class ScopedLogSubject {
 public:
  explicit ScopedLogSubject(LogSubject subject);
  ~ScopedLogSubject();
  ScopedLogSubject(const ScopedLogSubject&) = delete;
  ScopedLogSubject& operator=(const ScopedLogSubject&) = delete;

 private:
  LogSubject before_;
};

// `message` as Shown() gives it: nothing in it can look like another line. Safe from any thread, destructors included;
// never throws.
void Log(LogLevel level, absl::string_view message);

// Log() of "job ID: message", with the job as its subject.
void LogOfJob(LogLevel level, absl::string_view job, absl::string_view message);

}  // namespace lenet

#endif  // LENET_TRAINER_BASE_LOG_H_
