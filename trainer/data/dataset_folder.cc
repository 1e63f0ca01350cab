#include "trainer/data/dataset_folder.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;

constexpr char kTrainImages[] = "train-images-idx3-ubyte";
constexpr char kTrainLabels[] = "train-labels-idx1-ubyte";
constexpr char kTestImages[] = "t10k-images-idx3-ubyte";
constexpr char kTestLabels[] = "t10k-labels-idx1-ubyte";

// The plain file or the one with ".gz"; empty if neither is there.
fs::path PresentFile(const fs::path& folder, const char* base) {
  for (const char* suffix : {"", ".gz"}) {
    fs::path path = folder / absl::StrCat(base, suffix);
    std::error_code error;
    if (fs::exists(path, error)) return path;
  }
  return {};
}

absl::StatusOr<fs::path> FindFile(const fs::path& folder, const fs::path& root, const char* base) {
  const fs::path path = PresentFile(folder, base);
  if (path.empty()) {
    return absl::NotFoundError(
        absl::StrCat("'", (folder / base).string(), "' is missing, and so is that name with .gz"));
  }
  std::error_code error;
  fs::path canonical = fs::canonical(path, error);
  if (error) return absl::NotFoundError(absl::StrCat("cannot resolve '", path.string(), "': ", error.message()));
  if (!IsWithin(canonical, root)) {
    return absl::NotFoundError(absl::StrCat("'", path.string(), "' is a link to '", canonical.string(),
                                            "', out of the data folder '", root.string(), "'"));
  }
  return canonical;
}

absl::Status CheckCounts(const IdxFile& images, const IdxFile& labels) {
  if (images.header.count == labels.header.count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(IdxPosition(labels, 4), "the count is ", labels.header.count,
                                                 " labels, but that of '", images.name, "' is ", images.header.count,
                                                 " images"));
}

absl::Status CheckShapes(const IdxFile& train, const IdxFile& test) {
  if (train.header.height == test.header.height && train.header.width == test.header.width) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(IdxPosition(test, 8), "images of ", test.header.height, "x",
                                                 test.header.width, ", but those of '", train.name, "' are ",
                                                 train.header.height, "x", train.header.width));
}

absl::Status CheckHeaders(const IdxFile& train_images, const IdxFile& train_labels, const IdxFile& test_images,
                          const IdxFile& test_labels) {
  LENET_RETURN_IF_ERROR(CheckCounts(train_images, train_labels));
  LENET_RETURN_IF_ERROR(CheckCounts(test_images, test_labels));
  return CheckShapes(train_images, test_images);
}

absl::StatusOr<int> CountClasses(const IdxFile& train_labels, const IdxFile& test_labels) {
  const int classes = *std::max_element(train_labels.values.begin(), train_labels.values.end()) + 1;
  if (classes < 2) {
    return absl::InvalidArgumentError(absl::StrCat(IdxPosition(train_labels, train_labels.header.size()), "all ",
                                                   train_labels.header.count,
                                                   " labels are 0; there must be at least 2 classes"));
  }
  const auto wrong = std::find_if(test_labels.values.begin(), test_labels.values.end(),
                                  [classes](uint8_t label) { return label >= classes; });
  if (wrong != test_labels.values.end()) {
    const int64_t offset = test_labels.header.size() + (wrong - test_labels.values.begin());
    return absl::InvalidArgumentError(absl::StrCat(IdxPosition(test_labels, offset), "label ", int{*wrong},
                                                   " is out of range; the largest in '", train_labels.name, "' is ",
                                                   classes - 1));
  }
  return classes;
}

Split MakeSplit(IdxFile images, IdxFile labels) {
  Split split;
  split.shape = {1, images.header.height, images.header.width};
  split.count = images.header.count;
  split.images = std::move(images.values);
  split.labels = std::move(labels.values);
  return split;
}

}  // namespace

bool IsWithin(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

bool IsDatasetFolder(const fs::path& folder) {
  for (const char* base : {kTrainImages, kTrainLabels, kTestImages, kTestLabels}) {
    if (!PresentFile(folder, base).empty()) return true;
  }
  return false;
}

absl::StatusOr<DatasetFiles> FindDatasetFiles(const fs::path& folder, const fs::path& root) {
  DatasetFiles files;
  LENET_ASSIGN_OR_RETURN(files.train_images, FindFile(folder, root, kTrainImages));
  LENET_ASSIGN_OR_RETURN(files.train_labels, FindFile(folder, root, kTrainLabels));
  LENET_ASSIGN_OR_RETURN(files.test_images, FindFile(folder, root, kTestImages));
  LENET_ASSIGN_OR_RETURN(files.test_labels, FindFile(folder, root, kTestLabels));
  return files;
}

absl::StatusOr<DatasetHeaders> ReadDatasetHeaders(const DatasetFiles& files) {
  LENET_ASSIGN_OR_RETURN(const IdxFile train_images, ReadIdxHeader(files.train_images, IdxKind::kImages));
  LENET_ASSIGN_OR_RETURN(const IdxFile train_labels, ReadIdxHeader(files.train_labels, IdxKind::kLabels));
  LENET_ASSIGN_OR_RETURN(const IdxFile test_images, ReadIdxHeader(files.test_images, IdxKind::kImages));
  LENET_ASSIGN_OR_RETURN(const IdxFile test_labels, ReadIdxHeader(files.test_labels, IdxKind::kLabels));
  LENET_RETURN_IF_ERROR(CheckHeaders(train_images, train_labels, test_images, test_labels));
  return DatasetHeaders{.shape = {1, train_images.header.height, train_images.header.width},
                        .train_count = train_images.header.count,
                        .test_count = test_images.header.count};
}

absl::StatusOr<Dataset> LoadDataset(absl::string_view name, const DatasetFiles& files, const CancelCheck& cancelled) {
  // The small files first: their errors come sooner.
  LENET_ASSIGN_OR_RETURN(IdxFile train_labels, ReadIdxFile(files.train_labels, IdxKind::kLabels, cancelled));
  LENET_ASSIGN_OR_RETURN(IdxFile test_labels, ReadIdxFile(files.test_labels, IdxKind::kLabels, cancelled));
  LENET_ASSIGN_OR_RETURN(IdxFile test_images, ReadIdxFile(files.test_images, IdxKind::kImages, cancelled));
  LENET_ASSIGN_OR_RETURN(IdxFile train_images, ReadIdxFile(files.train_images, IdxKind::kImages, cancelled));
  return AssembleDataset(name, std::move(train_images), std::move(train_labels), std::move(test_images),
                         std::move(test_labels));
}

absl::StatusOr<Dataset> AssembleDataset(absl::string_view name, IdxFile train_images, IdxFile train_labels,
                                        IdxFile test_images, IdxFile test_labels) {
  LENET_RETURN_IF_ERROR(CheckHeaders(train_images, train_labels, test_images, test_labels));
  LENET_ASSIGN_OR_RETURN(const int classes, CountClasses(train_labels, test_labels));
  Dataset dataset;
  dataset.name = std::string(name);
  dataset.classes = classes;
  dataset.train = MakeSplit(std::move(train_images), std::move(train_labels));
  dataset.test = MakeSplit(std::move(test_images), std::move(test_labels));
  return dataset;
}

}  // namespace lenet
