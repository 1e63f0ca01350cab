#include "tests/contract/job_store_contract.h"

#include <memory>

#include "server/store/memory_store.h"
#include "server/store/sqlite_store.h"
#include "tests/support/temp_folder.h"

namespace lenet {

INSTANTIATE_TEST_SUITE_P(Memory, JobStoreContract,
                         ::testing::Values(JobStoreFactory([] { return std::make_unique<MemoryStore>(); })),
                         [](const auto&) { return "Store"; });

INSTANTIATE_TEST_SUITE_P(Sqlite, JobStoreContract, ::testing::Values(JobStoreFactory([]() -> std::unique_ptr<JobStore> {
                           static std::unique_ptr<TempFolder> folder;  // of the test that runs
                           folder = std::make_unique<TempFolder>();
                           return SqliteStore::Open(folder->path()).value();
                         })),
                         [](const auto&) { return "Store"; });

}  // namespace lenet
