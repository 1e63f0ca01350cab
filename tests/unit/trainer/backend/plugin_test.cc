#include "trainer/backend/plugin.h"

#include <dlfcn.h>
#include <math.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/synthetic_data.h"
#include "tests/support/temp_folder.h"
#include "trainer/base/log.h"
#include "trainer/nn/net.h"

namespace lenet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::filesystem::path CpuPlugin() { return PluginFolder("") / "liblenet_cpu.so"; }

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(PluginTest, AConfiguredFolderIsTakenAsItIs) {
  EXPECT_EQ(PluginFolder("/no/such/folder"), "/no/such/folder");
  EXPECT_FALSE(PluginFolder("").empty());
}

TEST(PluginTest, TheCpuPluginLoadsMoreThanOnce) {
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<std::unique_ptr<Backend>> backend = LoadBackend(PluginFolder(""), "cpu");
    ASSERT_TRUE(backend.ok()) << backend.status();
    EXPECT_EQ(std::string((*backend)->name()), "cpu");
    EXPECT_FALSE((*backend)->devices().empty());
    EXPECT_TRUE((*backend)->oversubscribable());
    EXPECT_FALSE((*backend)->supports(Precision::kTf32));
  }
}

TEST(PluginTest, TheCpuPluginHasOneKindOfEngine) {
  const absl::StatusOr<std::unique_ptr<Backend>> backend = LoadBackend(PluginFolder(""), "cpu");
  ASSERT_TRUE(backend.ok()) << backend.status();
  const Net net = Net::Create(PresetNet("lenet", {1, 28, 28}, 10).value()).value();
  for (const EngineKind kind : {EngineKind::kAuto, EngineKind::kLayered}) {
    EXPECT_TRUE((*backend)->CheckEngine(kind, net, Precision::kFp32).ok());
  }
  const absl::Status refused = (*backend)->CheckEngine(EngineKind::kFused, net, Precision::kFp32);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(refused), HasSubstr("engine = fused"));
  const std::vector<int> devices = {0};
  const std::unique_ptr<RankGroup> group = (*backend)->NewGroup(devices).value();
  const EngineOptions options = {
      .net = &net, .dataset = SyntheticDataset(20, 10), .batch_size = 2, .engine = EngineKind::kFused};
  EXPECT_EQ(group->NewEngine(0, options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PluginTest, ARelativeFolderIsNotLookedForInTheSystemsFolders) {
  const absl::Status status = LoadBackend("", "cpu").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(status), HasSubstr((std::filesystem::current_path() / "liblenet_cpu.so").string()));
}

TEST(PluginTest, AFileThatIsMissingIsNamed) {
  const TempFolder folder;
  for (const char* name : {"cpu", "cuda"}) {
    const absl::Status status = LoadBackend(folder.path(), name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(Message(status), HasSubstr((folder / ("liblenet_" + std::string(name) + ".so")).string()));
  }
}

TEST(PluginTest, AFileThatIsNoLibraryIsUnavailable) {
  const TempFolder folder;
  for (const char* name : {"cpu", "cuda"}) {
    std::ofstream(folder / ("liblenet_" + std::string(name) + ".so")) << "<!DOCTYPE html>";
    const absl::Status status = LoadBackend(folder.path(), name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    // Where there is no driver, the CUDA plug-in is not even opened.
    EXPECT_THAT(Message(status), AnyOf(HasSubstr((folder / "liblenet_").string()), HasSubstr("libcuda.so.1")));
  }
}

TEST(PluginTest, ALibraryThatIsNoPluginIsUnavailable) {
  Dl_info libm;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(static_cast<double (*)(double)>(&::cbrt)), &libm), 0);
  const TempFolder folder;
  std::filesystem::copy_file(std::filesystem::canonical(libm.dli_fname), folder / "liblenet_cpu.so");
  const absl::Status status = LoadBackend(folder.path(), "cpu").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("liblenet_cpu.so"), HasSubstr(kBackendEntryName)));
}

TEST(PluginTest, APluginOfAnotherInterfaceRefuses) {
  void* library = dlopen(CpuPlugin().c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto entry = reinterpret_cast<BackendEntry>(dlsym(library, kBackendEntryName));
  ASSERT_NE(entry, nullptr);
  absl::StatusOr<std::unique_ptr<Backend>> backend = absl::UnknownError("");
  entry(kBackendAbi + 1, GetLogSink(), &backend);
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(backend.status()),
              AllOf(HasSubstr(std::to_string(kBackendAbi)), HasSubstr(std::to_string(kBackendAbi + 1))));
}

TEST(PluginTest, AutoTakesTheCpuWhereThereIsNoGpuAndSaysWhy) {
  const TempFolder folder;
  std::filesystem::create_symlink(std::filesystem::canonical(CpuPlugin()), folder / "liblenet_cpu.so");
  const absl::StatusOr<SelectedBackend> chosen = SelectBackend(folder.path(), "auto");
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(std::string(chosen->backend->name()), "cpu");
  EXPECT_THAT(chosen->reason, HasSubstr("liblenet_cuda.so"));
  const absl::StatusOr<SelectedBackend> asked = SelectBackend(folder.path(), "cpu");
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_THAT(asked->reason, IsEmpty());
  EXPECT_EQ(SelectBackend(folder.path(), "cuda").status().code(), absl::StatusCode::kNotFound);
}

TEST(PluginTest, NoBackendAtAllIsAnErrorWithEveryReason) {
  const TempFolder folder;
  const absl::Status none = SelectBackend(folder.path(), "auto").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(none), AllOf(HasSubstr("liblenet_cpu.so"), HasSubstr("liblenet_cuda.so")));
  const absl::Status cpu = SelectBackend(folder.path(), "cpu").status();
  EXPECT_EQ(cpu.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(cpu), Not(HasSubstr("cuda")));
}

TEST(PluginTest, AnotherChoiceIsRefused) {
  const absl::Status status = SelectBackend(PluginFolder(""), "gpu").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("'gpu'"));
}

TEST(PluginTest, TheInstructionSetCanBeChosen) {
  ASSERT_EQ(setenv("LENET_CPU_ISA", "baseline", 1), 0);
  const absl::StatusOr<std::unique_ptr<Backend>> baseline = LoadBackend(PluginFolder(""), "cpu");
  ASSERT_EQ(setenv("LENET_CPU_ISA", "avx1024", 1), 0);
  const absl::Status unknown = LoadBackend(PluginFolder(""), "cpu").status();
  ASSERT_EQ(unsetenv("LENET_CPU_ISA"), 0);
  ASSERT_TRUE(baseline.ok()) << baseline.status();
  EXPECT_EQ((*baseline)->devices().front().kind, "cpu baseline");
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(unknown), AllOf(HasSubstr("avx1024"), HasSubstr("baseline")));
}

}  // namespace
}  // namespace lenet
