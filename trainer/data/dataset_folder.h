// A data set as a folder of four IDX files: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte
// and t10k-labels-idx1-ubyte, each with or without ".gz"; if both are there the plain one is read.
#ifndef LENET_TRAINER_DATA_DATASET_FOLDER_H_
#define LENET_TRAINER_DATA_DATASET_FOLDER_H_

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/data/dataset.h"
#include "trainer/data/idx.h"

namespace lenet {

struct DatasetFiles {
  std::filesystem::path train_images;
  std::filesystem::path train_labels;
  std::filesystem::path test_images;
  std::filesystem::path test_labels;
};

// Whether at least one of the four files is there.
bool IsDatasetFolder(const std::filesystem::path& folder);

// Canonical paths. NOT_FOUND names a file that is missing, or one that a link leads out of `root` (a canonical path
// that holds `folder`).
absl::StatusOr<DatasetFiles> FindDatasetFiles(const std::filesystem::path& folder, const std::filesystem::path& root);

struct DatasetHeaders {
  ImageShape shape;
  int64_t train_count = 0;
  int64_t test_count = 0;
};

// Reads the four headers alone, and checks that they fit together: as many labels as images, one size of image.
absl::StatusOr<DatasetHeaders> ReadDatasetHeaders(const DatasetFiles& files);

// Loads the set and checks it whole: idx.h's checks, those of ReadDatasetHeaders, at least 2 classes, each test label
// below the number of classes. INVALID_ARGUMENT names the file, the offset and the value. CANCELLED.
absl::StatusOr<Dataset> LoadDataset(absl::string_view name, const DatasetFiles& files,
                                    const CancelCheck& cancelled = {});

// The last step of LoadDataset: puts four parsed files together.
absl::StatusOr<Dataset> AssembleDataset(absl::string_view name, IdxFile train_images, IdxFile train_labels,
                                        IdxFile test_images, IdxFile test_labels);

// Whether `path` is `folder` or lies below it; both canonical.
bool IsWithin(const std::filesystem::path& path, const std::filesystem::path& folder);

}  // namespace lenet

#endif  // LENET_TRAINER_DATA_DATASET_FOLDER_H_
