// The tables of the database, whether they are whole, and the boot of the kernel that they belong to.
#ifndef LENET_SERVER_STORE_SQLITE_SCHEMA_H_
#define LENET_SERVER_STORE_SQLITE_SCHEMA_H_

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/store/sqlite.h"

namespace lenet {

// Makes the tables in an empty database, unless its folder has what is left of jobs (DATA_LOSS). FAILED_PRECONDITION,
// and no change, if it is another program's or of another version.
absl::Status Migrate(Database* database, const std::filesystem::path& state_folder);

// Whether the file's structure is whole, as far as reading it once tells (0.4 s for 512 MiB in memory). DATA_LOSS tells
// what is wrong.
absl::Status CheckIntegrity(Database* database);

// DATA_LOSS: `what` is not as it was written.
absl::Status Damaged(absl::string_view what);

// Another one after each start of the kernel; empty if it cannot be read.
std::string KernelBootId();

}  // namespace lenet

#endif  // LENET_SERVER_STORE_SQLITE_SCHEMA_H_
