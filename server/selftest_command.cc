#include "server/selftest_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "server/config.h"
#include "server/selftest.h"
#include "trainer/base/text.h"

namespace lenet {
namespace {

const char* NameOf(CheckResult result) {
  switch (result) {
    case CheckResult::kOk:
      return "ok";
    case CheckResult::kWarning:
      return "warning";
    case CheckResult::kFailed:
      return "failed";
    case CheckResult::kSkipped:
      return "skipped";
  }
  return "unknown";
}

}  // namespace

int SelftestCommand(int argc, const char* const* argv) {
  std::string backend = "auto";
  std::string plugin_dir;
  SelftestOptions options = {.reference = ReferenceFile(), .state_dir = DefaultStateDir()};
  double training_seconds = 1;
  double timeout_seconds = 60;
  bool json = false;
  CLI::App app(
      "lenetd selftest checks whether this machine can train: libraries, devices, sums over all of them, "
      "memory, disk, and a short training against values that PyTorch computed.",
      "lenetd selftest");
  app.option_defaults()->always_capture_default();
  app.footer("Exit codes: 0 no check failed; 1 one did; 2 bad command line.");
  app.add_option("--backend", backend, "Devices to check; auto takes GPUs if there are any")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--plugin-dir", plugin_dir, "Folder of the backends' libraries");
  app.add_option("--state-dir", options.state_dir, "Folder that lenetd would keep its state in");
  app.add_option("--reference", options.reference, "File of the reference values");
  app.add_option("--training", training_seconds, "Seconds of the training")->check(CLI::Range(0.1, 3600.0));
  app.add_option("--timeout", timeout_seconds, "Seconds that a check on devices may take")
      ->check(CLI::Range(1.0, 3600.0));
  app.add_flag("--json", json, "One JSON object a line for each check, and one for the whole at the end");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  options.training = std::chrono::milliseconds(static_cast<int64_t>(training_seconds * 1000));
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000));

  CheckResult worst = CheckResult::kOk;
  if (!json) std::printf("%-18s %-8s %s\n", "CHECK", "RESULT", "DETAIL");
  const bool ended = RunSelftest(options, SelectBackend(PluginFolder(plugin_dir), backend), [&](const Check& check) {
    if (check.result == CheckResult::kFailed || (check.result == CheckResult::kWarning && worst == CheckResult::kOk)) {
      worst = check.result;
    }
    const std::string detail = ValidUtf8(check.detail);
    if (json) {
      const nlohmann::ordered_json line = {{"check", check.name}, {"result", NameOf(check.result)}, {"detail", detail}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%-18s %-8s %s\n", check.name.c_str(), NameOf(check.result), detail.c_str());
    }
    std::fflush(stdout);
  });
  if (json) std::printf("%s\n", nlohmann::ordered_json{{"result", NameOf(worst)}}.dump().c_str());
  std::fflush(stdout);
  if (!ended) std::_Exit(kExitFailure);
  return worst == CheckResult::kFailed ? kExitFailure : kExitOk;
}

}  // namespace lenet
