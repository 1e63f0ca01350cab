// Where lenetd's log goes.
#ifndef LENET_SERVER_LOGGING_H_
#define LENET_SERVER_LOGGING_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/base/descriptor.h"
#include "trainer/base/log.h"

namespace lenet {

// How a line of log begins, before the thread and the message.
enum class LineFormat {
  kTime,     // with the time and the level
  kJournal,  // with the priority that the journal takes from it, as "<4>", and the level; the journal has its own time
  kEntry,    // an entry in the journal's native protocol: MESSAGE, PRIORITY, TID, and LENET_JOB and LENET_RANK of what
             // the line is about; https://systemd.io/JOURNAL_NATIVE_PROTOCOL
};

// A line of `message`, which Shown() gave, of the calling thread and its subject; ends with '\n'.
std::string LogLine(LineFormat format, LogLevel level, absl::string_view message);

inline constexpr char kJournalSocket[] = "/run/systemd/journal/socket";

// A socket each write to which is an entry. UNAVAILABLE with the system's reason; INVALID_ARGUMENT if the path is too
// long for a socket.
absl::StatusOr<UniqueDescriptor> ConnectToJournal(const std::string& path);

// Whether the descriptor is the one that $JOURNAL_STREAM, whose value this is, names by device and inode: what is
// written to it goes to systemd's journal. A descriptor that was redirected since is another.
bool IsJournal(int fd, absl::string_view journal_stream);

// Lines for a descriptor that may take none for a while, as a pipe does that nobody reads. A thread of its own writes
// them. Safe from any thread.
class LineWriter {
 public:
  // Takes a duplicate of `fd`. The format is that of lines of its own.
  explicit LineWriter(int fd, LineFormat format = LineFormat::kTime);
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

// From now on Log() writes lines of at least `level` to standard error, with time, level and thread. If that is the
// journal, they become its entries, or lines in its format where the socket `journal` takes none. Once.
void SetUpLogging(LogLevel level, const std::string& journal = kJournalSocket);

// Sets another level, for plug-ins, too. Safe from any thread.
void SetLogLevel(LogLevel level);

// Before the process ends: waits for a moment until all lines are out.
void FlushLog();

}  // namespace lenet

#endif  // LENET_SERVER_LOGGING_H_
