#include "trainer/data/catalog.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/base/status.h"
#include "trainer/data/dataset_folder.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNameLength = 64;
constexpr std::chrono::milliseconds kCancelPoll(20);

bool IsDatasetName(absl::string_view name) {
  const auto allowed = [](unsigned char c) { return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-'; };
  return !name.empty() && name.size() <= kMaxNameLength && absl::ascii_isalnum(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), allowed);
}

absl::StatusOr<std::string> Fingerprint(const DatasetFiles& files) {
  std::string result;
  for (const fs::path* path : {&files.train_images, &files.train_labels, &files.test_images, &files.test_labels}) {
    struct stat info;
    if (::stat(path->c_str(), &info) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat '", path->string(), "'"));
    }
    absl::StrAppend(&result, path->string(), "|", info.st_dev, "|", info.st_ino, "|", info.st_size, "|",
                    info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, "\n");
  }
  return result;
}

int64_t BytesOf(const Dataset& dataset) {
  return static_cast<int64_t>(dataset.train.images.size() + dataset.train.labels.size() + dataset.test.images.size() +
                              dataset.test.labels.size());
}

DatasetInfo Describe(std::string name, const fs::path& folder, const fs::path& root) {
  DatasetInfo info;
  info.name = std::move(name);
  info.path = folder.string();
  const auto headers = [&]() -> absl::StatusOr<DatasetHeaders> {
    LENET_ASSIGN_OR_RETURN(const DatasetFiles files, FindDatasetFiles(folder, root));
    return ReadDatasetHeaders(files);
  }();
  if (!headers.ok()) {
    info.error = std::string(headers.status().message());
    return info;
  }
  info.valid = true;
  info.shape = headers->shape;
  info.train_count = headers->train_count;
  info.test_count = headers->test_count;
  return info;
}

absl::StatusOr<Dataset> LoadUnchanged(absl::string_view name, const DatasetFiles& files, const std::string& fingerprint,
                                      const CancelCheck& cancelled) {
  LENET_ASSIGN_OR_RETURN(Dataset dataset, LoadDataset(name, files, cancelled));
  LENET_ASSIGN_OR_RETURN(const std::string after, Fingerprint(files));
  if (after != fingerprint) return absl::AbortedError("its files changed while they were read");
  return dataset;
}

}  // namespace

DatasetCatalog::DatasetCatalog(std::vector<fs::path> roots, int64_t cache_bytes)
    : cache_bytes_(cache_bytes), roots_(std::move(roots)) {}

void DatasetCatalog::SetRoots(std::vector<fs::path> roots) {
  MutexLock lock(&roots_mutex_);
  roots_ = std::move(roots);
}

// A copy: reading folders may take its time.
std::vector<fs::path> DatasetCatalog::roots() const {
  MutexLock lock(&roots_mutex_);
  return roots_;
}

std::optional<DatasetCatalog::Found> DatasetCatalog::Search(const std::vector<fs::path>& roots,
                                                            const std::string& name) {
  for (const fs::path& configured : roots) {
    std::error_code error;
    const fs::path root = fs::canonical(configured, error);
    if (error) continue;
    const fs::path folder = fs::canonical(root / name, error);
    if (!error && IsWithin(folder, root) && IsDatasetFolder(folder)) return Found{.folder = folder, .root = root};
  }
  return std::nullopt;
}

absl::StatusOr<DatasetCatalog::Found> DatasetCatalog::Find(absl::string_view name) const {
  if (!IsDatasetName(name)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(name.substr(0, kMaxNameLength)),
                                                   "\" is no name of a data set: it must be 1 to ", kMaxNameLength,
                                                   " of [A-Za-z0-9._-] and start with a letter or digit"));
  }
  if (std::optional<Found> found = Search(roots(), std::string(name))) return *std::move(found);
  std::vector<std::string> names;
  for (const auto& [found, place] : SearchAll()) names.push_back(found);
  return absl::NotFoundError(
      absl::StrCat("no data set \"", name,
                   "\": ", names.empty() ? "there is none" : "it must be one of " + absl::StrJoin(names, ", ")));
}

absl::StatusOr<fs::path> DatasetCatalog::Resolve(absl::string_view name) const {
  LENET_ASSIGN_OR_RETURN(Found found, Find(name));
  return std::move(found.folder);
}

absl::StatusOr<DatasetInfo> DatasetCatalog::Inspect(absl::string_view name) const {
  LENET_ASSIGN_OR_RETURN(const Found found, Find(name));
  return Describe(std::string(name), found.folder, found.root);
}

std::map<std::string, DatasetCatalog::Found> DatasetCatalog::SearchAll() const {
  const std::vector<fs::path> roots = this->roots();
  std::set<std::string> names;
  for (const fs::path& root : roots) {
    std::error_code error;
    for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
      std::string name = entry->path().filename().string();
      if (IsDatasetName(name)) names.insert(std::move(name));
    }
  }
  std::map<std::string, Found> all;
  for (const std::string& name : names) {
    if (std::optional<Found> found = Search(roots, name)) all.emplace(name, *std::move(found));
  }
  return all;
}

std::vector<DatasetInfo> DatasetCatalog::List() const {
  std::vector<DatasetInfo> infos;
  for (const auto& [name, found] : SearchAll()) infos.push_back(Describe(name, found.folder, found.root));
  return infos;
}

std::shared_ptr<const Dataset> DatasetCatalog::Lookup(const std::string& fingerprint) {
  const auto entry = std::find_if(cache_.begin(), cache_.end(),
                                  [&](const CacheEntry& held) { return held.fingerprint == fingerprint; });
  if (entry == cache_.end()) return nullptr;
  std::shared_ptr<const Dataset> dataset = entry->dataset.lock();
  if (dataset == nullptr) return nullptr;
  entry->kept = dataset;
  cache_.splice(cache_.begin(), cache_, entry);
  Evict();
  return dataset;
}

std::shared_ptr<const Dataset> DatasetCatalog::Store(std::string fingerprint, Dataset dataset) {
  CacheEntry entry;
  entry.name = dataset.name;
  entry.fingerprint = std::move(fingerprint);
  entry.bytes = BytesOf(dataset);
  std::shared_ptr<const Dataset> result = std::make_shared<const Dataset>(std::move(dataset));
  entry.dataset = result;
  entry.kept = result;
  // An earlier state of the same files is of no more use.
  cache_.remove_if([&](const CacheEntry& held) { return held.name == entry.name; });
  cache_.push_front(std::move(entry));
  Evict();
  return result;
}

void DatasetCatalog::Evict() {
  int64_t sum = 0;
  for (CacheEntry& entry : cache_) {
    sum += entry.kept == nullptr ? 0 : entry.bytes;
    if (sum > cache_bytes_) entry.kept.reset();
  }
  cache_.remove_if([](const CacheEntry& entry) { return entry.dataset.expired(); });
}

absl::StatusOr<std::shared_ptr<const Dataset>> DatasetCatalog::Load(absl::string_view name,
                                                                    const CancelCheck& cancelled) {
  LENET_ASSIGN_OR_RETURN(const Found found, Find(name));
  const std::string context = absl::StrCat("data set \"", name, "\"");
  absl::StatusOr<DatasetFiles> files = FindDatasetFiles(found.folder, found.root);
  if (!files.ok()) return Annotate(files.status(), context);
  absl::StatusOr<std::string> fingerprint = Fingerprint(*files);
  if (!fingerprint.ok()) return Annotate(fingerprint.status(), context);
  {
    MutexLock lock(&mutex_);
    while (loading_.contains(*fingerprint)) {
      if (cancelled && cancelled()) return absl::CancelledError(absl::StrCat(context, ": not waited for"));
      loaded_.WaitUntil(&mutex_, std::chrono::steady_clock::now() + kCancelPoll);
    }
    if (std::shared_ptr<const Dataset> cached = Lookup(*fingerprint)) return cached;
    loading_.insert(*fingerprint);
  }
  absl::StatusOr<Dataset> dataset;
  try {
    dataset = LoadUnchanged(name, *files, *fingerprint, cancelled);
  } catch (const std::bad_alloc&) {
    dataset = absl::ResourceExhaustedError("no memory to load it");
  }
  MutexLock lock(&mutex_);
  loading_.erase(*fingerprint);
  loaded_.SignalAll();
  if (!dataset.ok()) return Annotate(dataset.status(), context);
  return Store(*std::move(fingerprint), *std::move(dataset));
}

}  // namespace lenet
