#include "server/monitoring/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

// Of /proc/self/stat, counted from the state, which follows the name; proc(5) counts the state as the third.
constexpr size_t kUserTicks = 14 - 3;
constexpr size_t kSystemTicks = 15 - 3;
constexpr size_t kThreads = 20 - 3;
constexpr size_t kStartTicks = 22 - 3;
constexpr size_t kVirtualBytes = 23 - 3;
constexpr size_t kResidentPages = 24 - 3;

absl::StatusOr<std::string> ReadProc(const char* path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.empty()) return absl::UnavailableError(absl::StrCat(path, " cannot be read"));
  return text;
}

absl::Status Malformed(absl::string_view path) {
  return absl::UnavailableError(absl::StrCat(path, " is not as it is documented"));
}

// Seconds since 1970 at which the machine was started.
absl::StatusOr<int64_t> BootTime() {
  LENET_ASSIGN_OR_RETURN(const std::string text, ReadProc("/proc/stat"));
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    int64_t seconds = 0;
    if (words.size() == 2 && words[0] == "btime" && absl::SimpleAtoi(words[1], &seconds)) return seconds;
  }
  return Malformed("/proc/stat");
}

}  // namespace

absl::StatusOr<ProcessStats> ReadProcessStats() {
  LENET_ASSIGN_OR_RETURN(const std::string text, ReadProc("/proc/self/stat"));
  // The name is in parentheses and may hold some itself.
  const size_t name_end = text.rfind(") ");
  if (name_end == std::string::npos) return Malformed("/proc/self/stat");
  const std::vector<absl::string_view> fields = absl::StrSplit(absl::string_view(text).substr(name_end + 2), ' ');
  if (fields.size() <= kResidentPages) return Malformed("/proc/self/stat");
  int64_t user = 0;
  int64_t system = 0;
  int64_t start = 0;
  int64_t pages = 0;
  ProcessStats stats;
  const bool numbers =
      absl::SimpleAtoi(fields[kUserTicks], &user) && absl::SimpleAtoi(fields[kSystemTicks], &system) &&
      absl::SimpleAtoi(fields[kThreads], &stats.threads) && absl::SimpleAtoi(fields[kStartTicks], &start) &&
      absl::SimpleAtoi(fields[kVirtualBytes], &stats.virtual_bytes) && absl::SimpleAtoi(fields[kResidentPages], &pages);
  if (!numbers) return Malformed("/proc/self/stat");
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  LENET_ASSIGN_OR_RETURN(const int64_t boot, BootTime());
  stats.cpu_seconds = static_cast<double>(user + system) / ticks;
  stats.start_time = static_cast<double>(boot) + static_cast<double>(start) / ticks;
  stats.resident_bytes = pages * ::sysconf(_SC_PAGESIZE);

  std::error_code error;
  for (std::filesystem::directory_iterator fd("/proc/self/fd", error), end; !error && fd != end; fd.increment(error)) {
    ++stats.open_fds;
  }
  if (error) return absl::UnavailableError(absl::StrCat("/proc/self/fd cannot be read: ", error.message()));
  --stats.open_fds;  // that of the listing itself
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_fds = static_cast<int64_t>(limit.rlim_cur);
  return stats;
}

}  // namespace lenet
