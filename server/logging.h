// Where lenetd's log goes.
#ifndef LENET_SERVER_LOGGING_H_
#define LENET_SERVER_LOGGING_H_

#include <chrono>
#include <memory>
#include <string>

#include "trainer/base/log.h"

namespace lenet {

// Lines for a descriptor that may take none for a while, as a pipe does that nobody reads. A thread of its own writes
// them. Safe from any thread.
class LineWriter {
 public:
  // Takes a duplicate of `fd`.
  explicit LineWriter(int fd);
  // Does not wait: what is not written yet may be lost.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Returns when the line, which ends with '\n', is written; after a moment without, and at once while earlier lines
  // stand. The newest of too many lines are dropped; one in their place says how many. What the descriptor refuses is
  // lost.
  void Write(std::string line);
  // Waits until all is written; false if the deadline passes first.
  bool Flush(std::chrono::steady_clock::time_point deadline);

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the thread's, too
};

// From now on Log() writes lines of at least `level` to standard error, with time, level and thread. Once.
void SetUpLogging(LogLevel level);

// Before the process ends: waits for a moment until all lines are out.
void FlushLog();

}  // namespace lenet

#endif  // LENET_SERVER_LOGGING_H_
