// Files: read with a size limit, written so that a crash leaves the old content or the new.
#ifndef LENET_TRAINER_BASE_FILE_H_
#define LENET_TRAINER_BASE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/base/descriptor.h"

namespace lenet {

// A regular file, open for reading from its start. Move-only; one thread at a time.
class InputFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED, or INVALID_ARGUMENT if it is not a regular file (never waits on a FIFO or a device);
  // each message names the file and the system's reason.
  static absl::StatusOr<InputFile> Open(const std::filesystem::path& path);

  // Reads the next bytes into `out` and gives their number: out.size() unless the file ends first.
  absl::StatusOr<size_t> Read(std::span<std::byte> out);

  int64_t size() const { return size_; }  // when it was opened

 private:
  InputFile(UniqueDescriptor fd, int64_t size, std::filesystem::path path)
      : fd_(std::move(fd)), size_(size), path_(std::move(path)) {}

  UniqueDescriptor fd_;
  int64_t size_;
  std::filesystem::path path_;
};

// The content of a regular file. Errors as InputFile::Open, and RESOURCE_EXHAUSTED if it is larger than `max_bytes`.
absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path, int64_t max_bytes);

// Writes `pieces` in order to a temporary file in the same folder, ".<name>.<pid>-<number>.tmp", syncs it, renames it
// to `path`, and syncs the folder. On an error the temporary file is removed and the earlier content of `path` stays,
// unless it was the folder's sync that failed: then `path` has the new content, which a crash may undo.
absl::Status WriteFileAtomic(const std::filesystem::path& path, std::span<const std::span<const std::byte>> pieces);

// Makes a folder and those above it that are missing, and syncs what got a new entry. FAILED_PRECONDITION if something
// else is in the way.
absl::Status MakeFolders(const std::filesystem::path& folder);

}  // namespace lenet

#endif  // LENET_TRAINER_BASE_FILE_H_
