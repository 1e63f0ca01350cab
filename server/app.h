// lenetd from its start to its end.
#ifndef LENET_SERVER_APP_H_
#define LENET_SERVER_APP_H_

#include "server/config.h"
#include "server/config_reloader.h"
#include "server/shutdown_signals.h"

namespace lenet {

// Loads a backend, warms it up, and serves until a signal comes; then lets running jobs save and stop, and every stream
// end. Reloads of the configuration are applied from the warm-up on. Gives the exit code; what went wrong is in the
// log.
int RunServer(const ServerConfig& config, ShutdownSignals* signals, ConfigReloader* reloader);

}  // namespace lenet

#endif  // LENET_SERVER_APP_H_
