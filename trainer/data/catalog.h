// Data sets by name.
#ifndef LENET_TRAINER_DATA_CATALOG_H_
#define LENET_TRAINER_DATA_CATALOG_H_

#include <cstdint>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/base/mutex.h"
#include "trainer/data/dataset.h"
#include "trainer/data/idx.h"

namespace lenet {

struct DatasetInfo {
  std::string name;
  std::string path;    // the folder
  bool valid = false;  // whether the four files have sound headers
  std::string error;   // why not
  ImageShape shape;
  int64_t train_count = 0;
  int64_t test_count = 0;
};

// Maps a data set's name to the folder of that name below one of a list of folders, the first that has it (see
// dataset_folder.h for what it holds). Safe from any thread.
class DatasetCatalog {
 public:
  // Loaded sets stay in memory for the next job, the least recently used first to go, while they sum to at most
  // `cache_bytes`; one that a job still holds lives until the job lets go, and is given to others meanwhile.
  explicit DatasetCatalog(std::vector<std::filesystem::path> roots, int64_t cache_bytes = int64_t{1} << 30);

  // Calls that begin from now on look there. Loaded sets stay.
  void SetRoots(std::vector<std::filesystem::path> roots) ABSL_LOCKS_EXCLUDED(roots_mutex_);

  // Every folder below the roots that holds at least one of the four files, by name. Reads headers alone.
  std::vector<DatasetInfo> List() const;

  // One entry of that list. Errors as Resolve; a set whose headers are not sound is no error, but not `valid`.
  absl::StatusOr<DatasetInfo> Inspect(absl::string_view name) const;

  // The folder's canonical path. INVALID_ARGUMENT if `name` is not 1 to 64 of [A-Za-z0-9._-], starting with a letter or
  // digit; NOT_FOUND (with the names that exist) if no root has such a folder with at least one of the four files, or
  // if a link would lead out of the root. A root itself may be a link. Reads nothing beyond the folders.
  absl::StatusOr<std::filesystem::path> Resolve(absl::string_view name) const;

  // Loads and checks the whole set, or gives the cached one if its files have not changed since (size, time, inode).
  // Two threads that ask for one set share one load; loads of different sets do not wait for one another. An error
  // names the file, the offset and the value that is wrong (see idx.h); ABORTED if a file changed while it was read;
  // CANCELLED.
  absl::StatusOr<std::shared_ptr<const Dataset>> Load(absl::string_view name, const CancelCheck& cancelled = {})
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A folder found below a root, both canonical.
  struct Found {
    std::filesystem::path folder;
    std::filesystem::path root;
  };
  struct CacheEntry {
    std::string name;
    std::string fingerprint;  // of the files: paths, sizes, times, inodes
    int64_t bytes = 0;
    std::weak_ptr<const Dataset> dataset;  // as long as anyone holds it
    std::shared_ptr<const Dataset> kept;   // null once evicted
  };

  std::vector<std::filesystem::path> roots() const ABSL_LOCKS_EXCLUDED(roots_mutex_);
  // Of a name of the right form.
  static std::optional<Found> Search(const std::vector<std::filesystem::path>& roots, const std::string& name);
  std::map<std::string, Found> SearchAll() const;
  absl::StatusOr<Found> Find(absl::string_view name) const;  // Resolve, with the root
  std::shared_ptr<const Dataset> Lookup(const std::string& fingerprint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<const Dataset> Store(std::string fingerprint, Dataset dataset) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Evict() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t cache_bytes_;
  mutable Mutex roots_mutex_;
  std::vector<std::filesystem::path> roots_ ABSL_GUARDED_BY(roots_mutex_);
  Mutex mutex_;
  CondVar loaded_;                                         // loading_ has lost one
  std::set<std::string> loading_ ABSL_GUARDED_BY(mutex_);  // fingerprints
  std::list<CacheEntry> cache_ ABSL_GUARDED_BY(mutex_);    // most recently used first
};

}  // namespace lenet

#endif  // LENET_TRAINER_DATA_CATALOG_H_
