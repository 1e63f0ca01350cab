// Scripts of calls, without libFuzzer: the seeds, and random ones.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "trainer/base/file.h"

// service_fuzz.cc's entry, which has this name in a test.
extern "C" int RunServiceScript(const uint8_t* data, size_t size);

namespace lenet {
namespace {

constexpr int kRandomScripts = 300;
constexpr size_t kScriptBytes = 64;

void RunScript(const std::string& script) {
  RunServiceScript(reinterpret_cast<const uint8_t*>(script.data()), script.size());
}

// What breaks a promise ends the process.
TEST(ServiceScriptsTest, KeepEveryPromise) {
  int seeds = 0;
  for (const std::filesystem::directory_entry& entry :
       std::filesystem::directory_iterator(LENET_TEST_DATA "/service")) {
    RunScript(ReadFile(entry.path(), 1000).value());
    ++seeds;
  }
  EXPECT_EQ(seeds, 9);
  std::mt19937 random(1);
  for (int i = 0; i < kRandomScripts; ++i) {
    std::string script(kScriptBytes, '\0');
    // Many zeros: they begin jobs that are in order.
    for (char& byte : script) byte = random() % 3 == 0 ? '\0' : static_cast<char>(random() % 256);
    RunScript(script);
  }
}

}  // namespace
}  // namespace lenet
