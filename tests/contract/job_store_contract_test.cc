#include "tests/contract/job_store_contract.h"

#include <memory>
#include <string>
#include <utility>

#include "server/store/counting_store.h"
#include "server/store/memory_store.h"
#include "server/store/sqlite_store.h"
#include "tests/contract/job_store_forgetting.h"
#include "tests/support/temp_folder.h"

namespace lenet {

namespace {

std::unique_ptr<JobStore> InMemory(const StoreLimits& limits) { return std::make_unique<MemoryStore>(limits); }

std::unique_ptr<JobStore> InSqlite(const StoreLimits& limits) {
  static std::unique_ptr<TempFolder> folder;  // of the test that runs
  folder = std::make_unique<TempFolder>();
  return SqliteStore::Open(folder->path(), limits).value();
}

// Owns the store that it counts for.
class CountedMemoryStore : public CountingStore {
 public:
  explicit CountedMemoryStore(std::unique_ptr<MemoryStore> inner)
      : CountingStore(inner.get()), inner_(std::move(inner)) {}

 private:
  const std::unique_ptr<MemoryStore> inner_;
};

std::unique_ptr<JobStore> Counted(const StoreLimits& limits) {
  return std::make_unique<CountedMemoryStore>(std::make_unique<MemoryStore>(limits));
}

std::string Name(const ::testing::TestParamInfo<JobStoreFactory>&) { return "Store"; }

}  // namespace

INSTANTIATE_TEST_SUITE_P(Memory, JobStoreContract, ::testing::Values(JobStoreFactory(InMemory)), Name);
INSTANTIATE_TEST_SUITE_P(Sqlite, JobStoreContract, ::testing::Values(JobStoreFactory(InSqlite)), Name);
INSTANTIATE_TEST_SUITE_P(Counted, JobStoreContract, ::testing::Values(JobStoreFactory(Counted)), Name);
INSTANTIATE_TEST_SUITE_P(Memory, JobStoreForgetting, ::testing::Values(JobStoreFactory(InMemory)), Name);
INSTANTIATE_TEST_SUITE_P(Counted, JobStoreForgetting, ::testing::Values(JobStoreFactory(Counted)), Name);
INSTANTIATE_TEST_SUITE_P(Sqlite, JobStoreForgetting, ::testing::Values(JobStoreFactory(InSqlite)), Name);

}  // namespace lenet
