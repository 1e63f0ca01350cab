// One line of log, to a sink that the program sets; standard error until then.
#ifndef LENET_TRAINER_BASE_LOG_H_
#define LENET_TRAINER_BASE_LOG_H_

#include <cstddef>
#include <functional>

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

// `message` as Shown() gives it: nothing in it can look like another line. Safe from any thread, destructors included;
// never throws.
void Log(LogLevel level, absl::string_view message);

}  // namespace lenet

#endif  // LENET_TRAINER_BASE_LOG_H_
