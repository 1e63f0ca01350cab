// The variables that lenetctl reads.
#ifndef LENET_TESTS_UNIT_CLIENT_CTL_ENVIRONMENT_H_
#define LENET_TESTS_UNIT_CLIENT_CTL_ENVIRONMENT_H_

#include <cstdlib>

namespace lenet::ctl {

// So that a test does not depend on those of whoever runs it, nor on an earlier test's.
inline void ClearEnvironment() {
  for (const char* variable :
       {"LENET_SERVER", "LENET_CONTEXT", "LENET_CA", "LENET_CERT", "LENET_KEY", "LENET_TOKEN_FILE", "LENETCTL_CONFIG",
        "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME"}) {
    ::unsetenv(variable);  // NOLINT(concurrency-mt-unsafe): there is one thread
  }
}

}  // namespace lenet::ctl

#endif  // LENET_TESTS_UNIT_CLIENT_CTL_ENVIRONMENT_H_
