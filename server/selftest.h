// Checks of this machine for training: libraries, devices, sums over all of them, what they need of the system, and a
// training against reference values.
#ifndef LENET_SERVER_SELFTEST_H_
#define LENET_SERVER_SELFTEST_H_

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/backend/plugin.h"

namespace lenet {

struct SelftestOptions {
  std::filesystem::path reference;            // PyTorch's results; see ReferenceFile
  std::filesystem::path state_dir;            // where lenetd would keep its state
  std::string nvml = "libnvidia-ml.so.1";     // the driver's library that tells of ECC errors
  std::chrono::milliseconds training{1000};   // after the steps that it takes to learn
  std::chrono::milliseconds timeout{60'000};  // of each check that runs on devices
  std::chrono::milliseconds grace{10'000};    // after it, in which an abort may end the check
};

enum class CheckResult { kOk, kWarning, kFailed, kSkipped };

struct Check {
  std::string name;  // "libraries", "device 0"
  CheckResult result = CheckResult::kOk;
  std::string detail;  // what was found; what is wrong, and the bound

  static Check Ok(std::string name, std::string detail);
  static Check Failed(std::string name, const absl::Status& status);
  static Check Skipped(std::string name, std::string why);
};

// Runs all checks on the devices of a backend that was selected, or could not be; each is given to `done` as it ends.
// Those that cannot run as an earlier one failed are skipped. False if one hangs in a thread that cannot be ended: then
// the process should leave by _Exit, without destructors.
bool RunSelftest(const SelftestOptions& options, absl::StatusOr<SelectedBackend> selected,
                 const std::function<void(const Check&)>& done);

// A version that runs in the place of the one built with, both such as "9.14.0": failed if the major version differs,
// a warning if it is older.
CheckResult CompareVersions(const std::string& running, const std::string& built_with);

// share/lenet/reference.safetensors beside the executable's folder, else that of the source tree.
std::filesystem::path ReferenceFile();

}  // namespace lenet

#endif  // LENET_SERVER_SELFTEST_H_
