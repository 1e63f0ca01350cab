// Data sets as files.
#ifndef LENET_TESTS_SUPPORT_DATASET_FILES_H_
#define LENET_TESTS_SUPPORT_DATASET_FILES_H_

#include <filesystem>

#include "trainer/data/dataset.h"

namespace lenet {

// Makes `folder` and puts the data set's four files there, not compressed. False if that fails.
bool WriteDataset(const std::filesystem::path& folder, const Dataset& dataset);

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_DATASET_FILES_H_
