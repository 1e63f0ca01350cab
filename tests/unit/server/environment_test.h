// A test that sets variables of the environment.
#ifndef LENET_TESTS_UNIT_SERVER_ENVIRONMENT_TEST_H_
#define LENET_TESTS_UNIT_SERVER_ENVIRONMENT_TEST_H_

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace lenet {

// NOLINTBEGIN(concurrency-mt-unsafe): there is one thread
// Begins without the variables that lenetd reads; they are as before when the test is over.
class EnvironmentTest : public ::testing::Test {
 protected:
  EnvironmentTest() {
    std::vector<std::string> names = {"STATE_DIRECTORY", "RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR",
                                      "XDG_STATE_HOME",  "XDG_DATA_HOME",     "HOME"};
    for (char** entry = ::environ; *entry != nullptr; ++entry) {
      const absl::string_view text = *entry;
      if (absl::StartsWith(text, "LENETD_")) names.emplace_back(text.substr(0, text.find('=')));
    }
    for (const std::string& name : names) Set(name, std::nullopt);
  }
  ~EnvironmentTest() override {
    for (const auto& [name, value] : before_) Put(name, value);
  }

  // Until the test is over.
  void Set(const std::string& name, const std::optional<std::string>& value) {
    const char* const old = std::getenv(name.c_str());
    before_.try_emplace(name, old == nullptr ? std::optional<std::string>() : std::optional<std::string>(old));
    Put(name, value);
  }

 private:
  static void Put(const std::string& name, const std::optional<std::string>& value) {
    if (value) {
      ::setenv(name.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name.c_str());
    }
  }

  std::map<std::string, std::optional<std::string>> before_;
};
// NOLINTEND(concurrency-mt-unsafe)

}  // namespace lenet

#endif  // LENET_TESTS_UNIT_SERVER_ENVIRONMENT_TEST_H_
