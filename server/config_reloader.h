// Changes of the configuration while lenetd runs.
#ifndef LENET_SERVER_CONFIG_RELOADER_H_
#define LENET_SERVER_CONFIG_RELOADER_H_

#include <functional>

#include "server/config.h"
#include "trainer/base/mutex.h"

namespace lenet {

// Safe from any thread.
class ConfigReloader {
 public:
  // Puts the settings that can change while lenetd runs into force. It is called with all of them where one has
  // changed, and at each reload where there is an access file, which is read again then.
  using Apply = std::function<void(const ServerConfig& config)>;

  // `running` is what lenetd was started with, from these sources.
  ConfigReloader(ConfigSources sources, ServerConfig running, bool file_found);

  // From now on reloads are applied by `apply`, one call at a time; one that was asked for before, now. Null ends that;
  // no call is under way when this returns.
  void SetApply(Apply apply) ABSL_LOCKS_EXCLUDED(mutex_);

  // Reads the file again and applies what has changed. Logs each change, each that needs a restart, or what is wrong:
  // then nothing changes. A file that was there and is not any more is wrong.
  void Reload() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void ReloadNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;  // held while it is applied
  ConfigSources sources_ ABSL_GUARDED_BY(mutex_);
  ServerConfig running_ ABSL_GUARDED_BY(mutex_);
  Apply apply_ ABSL_GUARDED_BY(mutex_);
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;  // while there was nothing to apply it
};

}  // namespace lenet

#endif  // LENET_SERVER_CONFIG_RELOADER_H_
