// Variables of the environment.
#ifndef LENET_SERVER_ENVIRONMENT_H_
#define LENET_SERVER_ENVIRONMENT_H_

#include <cstdlib>
#include <string>

namespace lenet {

// Empty if not set.
inline std::string Environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing sets variables
  return value == nullptr ? "" : value;
}

}  // namespace lenet

#endif  // LENET_SERVER_ENVIRONMENT_H_
