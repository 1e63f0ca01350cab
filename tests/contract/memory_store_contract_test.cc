#include <memory>

#include "server/store/memory_store.h"
#include "tests/contract/job_store_contract.h"

namespace lenet {

INSTANTIATE_TEST_SUITE_P(Stores, JobStoreContract,
                         ::testing::Values(JobStoreFactory([] { return std::make_unique<MemoryStore>(); })),
                         [](const auto&) { return "Memory"; });

}  // namespace lenet
