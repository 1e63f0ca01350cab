#include "trainer/base/log.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

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

}  // namespace

void SetLogSink(LogSink sink) { Sink() = sink ? std::move(sink) : LogSink(LogToStderr); }

LogSink GetLogSink() { return Sink(); }

void Log(LogLevel level, absl::string_view message) {
  const std::string line = Shown(message, kMaxLogBytes);
  try {
    Sink()(level, line);
  } catch (...) {
    LogToStderr(level, line);
  }
}

}  // namespace lenet
