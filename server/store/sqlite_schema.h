// The tables of the database, its lock file, and the boot of the kernel that it belongs to.
#ifndef LENET_SERVER_STORE_SQLITE_SCHEMA_H_
#define LENET_SERVER_STORE_SQLITE_SCHEMA_H_

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/store/sqlite.h"
#include "trainer/base/descriptor.h"

namespace lenet {

// Locks `folder`/lenetd.lock, which is made if missing, until the descriptor is closed. UNAVAILABLE, with the name, if
// another process has it.
absl::StatusOr<UniqueDescriptor> LockFolder(const std::filesystem::path& folder);

// Makes the tables in an empty database. FAILED_PRECONDITION, and no change, if it is another program's or of another
// version.
absl::Status Migrate(Database* database);

// DATA_LOSS: `what` is not as it was written.
absl::Status Damaged(absl::string_view what);

// Another one after each start of the kernel; empty if it cannot be read.
std::string KernelBootId();

}  // namespace lenet

#endif  // LENET_SERVER_STORE_SQLITE_SCHEMA_H_
