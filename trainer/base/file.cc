#include "trainer/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

absl::Status SystemError(int error, absl::string_view what, const std::filesystem::path& path) {
  return absl::ErrnoToStatus(error, absl::StrCat(what, " '", path.string(), "'"));
}

// Linux frees the descriptor whatever close() answers, so it is never called twice.
absl::Status SyncAndClose(UniqueDescriptor fd, const std::filesystem::path& path) {
  absl::Status status;
  if (::fsync(fd.get().number) != 0) status = SystemError(errno, "cannot sync", path);
  if (::close(fd.release().number) != 0 && status.ok()) status = SystemError(errno, "cannot close", path);
  return status;
}

absl::Status SyncFolder(const std::filesystem::path& folder) {
  UniqueDescriptor fd(Descriptor{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)});
  if (!fd) return SystemError(errno, "cannot open the folder", folder);
  return SyncAndClose(std::move(fd), folder);
}

std::filesystem::path ParentOf(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

absl::Status WriteAll(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemError(errno, "cannot write", path);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// Makes a file that did not exist, with the permissions that the umask leaves; mkstemp would always give 0600.
absl::StatusOr<UniqueDescriptor> CreateTemporary(const std::filesystem::path& path, std::filesystem::path* temporary) {
  static std::atomic<uint64_t> counter{0};
  constexpr int kAttempts = 100;  // a file may be left from an earlier process with this id
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    *temporary = path.parent_path() /
                 absl::StrCat(".", path.filename().string(), ".", ::getpid(), "-", counter.fetch_add(1), ".tmp");
    UniqueDescriptor fd(Descriptor{::open(temporary->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)});
    if (fd) return fd;
    if (errno != EEXIST) break;
  }
  return SystemError(errno, "cannot create", *temporary);
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::filesystem::path& path) {
  UniqueDescriptor fd(Descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)});
  if (!fd) return SystemError(errno, "cannot open", path);
  struct stat info;
  if (::fstat(fd.get().number, &info) != 0) return SystemError(errno, "cannot stat", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("'", path.string(), "' is not a regular file"));
  }
  return InputFile(std::move(fd), info.st_size, path);
}

absl::StatusOr<size_t> InputFile::Read(std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::read(fd_.get().number, out.data() + done, out.size() - done);
    if (got < 0) {
      if (errno == EINTR) continue;
      return SystemError(errno, "cannot read", path_);
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path, int64_t max_bytes) {
  LENET_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  const auto too_large = [&](int64_t size) {
    return absl::ResourceExhaustedError(
        absl::StrCat("'", path.string(), "' has ", size, " bytes or more; the limit is ", max_bytes));
  };
  if (file.size() > max_bytes) return too_large(file.size());
  std::string content;
  try {
    // One byte more than its size shows whether it has grown since; files of /proc say 0 and have content.
    constexpr int64_t kFirstBytes = 4096;
    size_t end = static_cast<size_t>(std::min(std::max(file.size(), kFirstBytes), max_bytes)) + 1;
    for (size_t done = 0;;) {
      content.resize(end);
      LENET_ASSIGN_OR_RETURN(const size_t got, file.Read(std::as_writable_bytes(std::span(content).subspan(done))));
      done += got;
      if (done < end) {
        content.resize(done);
        return content;
      }
      if (static_cast<int64_t>(done) > max_bytes) return too_large(static_cast<int64_t>(done));
      end = static_cast<size_t>(std::min(2 * static_cast<int64_t>(done), max_bytes)) + 1;
    }
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for the content of '", path.string(), "'"));
  }
}

absl::Status WriteFileAtomic(const std::filesystem::path& path, std::span<const std::span<const std::byte>> pieces) {
  if (!path.has_filename()) {
    return absl::InvalidArgumentError(absl::StrCat("'", path.string(), "' does not name a file"));
  }
  std::filesystem::path temporary;
  LENET_ASSIGN_OR_RETURN(UniqueDescriptor fd, CreateTemporary(path, &temporary));
  absl::Status status;
  for (const std::span<const std::byte> piece : pieces) {
    if (status.ok()) status = WriteAll(fd.get().number, piece, temporary);
  }
  if (status.ok()) status = SyncAndClose(std::move(fd), temporary);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = SystemError(errno, absl::StrCat("cannot rename '", temporary.string(), "' to"), path);
  }
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return SyncFolder(ParentOf(path));
}

absl::Status MakeFolders(const std::filesystem::path& folder) {
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return absl::OkStatus();
  if (!folder.has_filename()) return MakeFolders(folder.parent_path());  // it ends with a slash
  LENET_RETURN_IF_ERROR(MakeFolders(folder.parent_path()));
  if (::mkdir(folder.c_str(), 0777) != 0) {
    const int reason = errno;
    // Another thread or process may have been quicker.
    if (reason != EEXIST || !std::filesystem::is_directory(folder, error)) {
      return SystemError(reason == EEXIST ? ENOTDIR : reason, "cannot make the folder", folder);
    }
  }
  return SyncFolder(ParentOf(folder));
}

}  // namespace lenet
