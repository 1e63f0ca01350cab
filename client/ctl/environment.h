// Variables of the environment.
#ifndef LENET_CLIENT_CTL_ENVIRONMENT_H_
#define LENET_CLIENT_CTL_ENVIRONMENT_H_

#include <cstdlib>
#include <string>

namespace lenet::ctl {

// Empty if not set.
inline std::string Variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing sets variables
  return value == nullptr ? "" : value;
}

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_ENVIRONMENT_H_
