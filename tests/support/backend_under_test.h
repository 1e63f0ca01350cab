// The plug-ins that a test runs on. A test's executable is built for one of them and says which by the macro
// LENET_TEST_BACKEND, "cpu" or "cuda"; its tests bear that name, so that the same tests run on both.
#ifndef LENET_TESTS_SUPPORT_BACKEND_UNDER_TEST_H_
#define LENET_TESTS_SUPPORT_BACKEND_UNDER_TEST_H_

#include <string>

#include "absl/status/statusor.h"
#include "trainer/backend/backend.h"

namespace lenet {

// Loaded on the first call and kept until the process ends.
absl::StatusOr<Backend*> BackendUnderTest(const std::string& name);

// Why no test can run on a GPU of this machine, as its driver tells it; empty if one can.
std::string WhyNoGpu();

}  // namespace lenet

// In a test or SetUp(): Backend* with the backend of this name. Where there is no GPU, skips with the reason.
#define LENET_USE_BACKEND(backend, name)                                             \
  {                                                                                  \
    if (std::string(name) == "cuda") {                                               \
      if (const std::string why = ::lenet::WhyNoGpu(); !why.empty()) {               \
        GTEST_SKIP() << why;                                                         \
      }                                                                              \
    }                                                                                \
    const absl::StatusOr<::lenet::Backend*> found = ::lenet::BackendUnderTest(name); \
    ASSERT_TRUE(found.ok()) << found.status();                                       \
    (backend) = *found;                                                              \
  }                                                                                  \
  static_assert(true)

#endif  // LENET_TESTS_SUPPORT_BACKEND_UNDER_TEST_H_
