#include "server/config_reloader.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/settings.h"
#include "trainer/base/log.h"

namespace lenet {

ConfigReloader::ConfigReloader(ConfigSources sources, ServerConfig running, bool file_found)
    : sources_(std::move(sources)), running_(std::move(running)) {
  sources_.file_may_lack = sources_.file_may_lack && !file_found;
}

void ConfigReloader::SetApply(Apply apply) {
  MutexLock lock(&mutex_);
  apply_ = std::move(apply);
  if (apply_ && std::exchange(asked_, false)) ReloadNow();
}

void ConfigReloader::Reload() {
  MutexLock lock(&mutex_);
  if (apply_) {
    ReloadNow();
  } else {
    asked_ = true;
  }
}

void ConfigReloader::ReloadNow() {
  const LoadedConfig loaded = LoadConfig(sources_);
  if (!loaded.errors.empty()) {
    for (const std::string& error : loaded.errors) Log(LogLevel::kError, absl::StrCat("reload: ", error));
    Log(LogLevel::kError, "reload: the configuration stays as it is");
    return;
  }
  sources_.file_may_lack = sources_.file_may_lack && !loaded.file_found;

  int changed = 0;
  for (const Setting& setting : Settings()) {
    const std::string before = TomlOf(setting, running_);
    const std::string after = TomlOf(setting, loaded.config);
    if (before == after) continue;
    const std::string change =
        absl::StrCat("reload: ", setting.key, ": ", before, " -> ", after, " (", loaded.origins.at(setting.key), ")");
    if (!setting.reloadable) {
      Log(LogLevel::kWarning, absl::StrCat(change, " needs a restart"));
      continue;
    }
    Log(LogLevel::kInfo, change);
    setting.copy(loaded.config, &running_);
    ++changed;
  }
  if (changed > 0 || !running_.access_file.empty()) apply_(running_);
  Log(LogLevel::kInfo, absl::StrCat("reload: done, ", changed, " settings changed"));
}

}  // namespace lenet
