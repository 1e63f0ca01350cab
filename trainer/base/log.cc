#include "trainer/base/log.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/text.h"

namespace lenet {
namespace {

void LogToStderr(LogLevel level, absl::string_view message) {
  static constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  std::fprintf(stderr, "%s: %.*s\n", kNames[static_cast<int>(level)], static_cast<int>(message.size()), message.data());
}

// Never destroyed: destructors of static objects may still log.
LogSink& Sink() {
  static LogSink* sink = new LogSink(LogToStderr);
  return *sink;
}

LogSubject& Subject() {
  thread_local LogSubject subject;
  return subject;
}

}  // namespace

void SetLogSink(LogSink sink) { Sink() = sink ? std::move(sink) : LogSink(LogToStderr); }

LogSink GetLogSink() { return Sink(); }

const LogSubject& ThreadLogSubject() { return Subject(); }

ScopedLogSubject::ScopedLogSubject(LogSubject subject) : before_(std::exchange(Subject(), std::move(subject))) {}

ScopedLogSubject::~ScopedLogSubject() { Subject() = std::move(before_); }

void Log(LogLevel level, absl::string_view message) {
  const std::string line = Shown(message, kMaxLogBytes);
  try {
    Sink()(level, line);
  } catch (...) {
    LogToStderr(level, line);
  }
}

void LogOfJob(LogLevel level, absl::string_view job, absl::string_view message) {
  const ScopedLogSubject subject({.job = std::string(job), .rank = Subject().rank});
  Log(level, absl::StrCat("job ", job, ": ", message));
}

}  // namespace lenet
