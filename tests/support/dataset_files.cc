#include "tests/support/dataset_files.h"

#include <cstdint>
#include <fstream>
#include <vector>

namespace lenet {
namespace {

namespace fs = std::filesystem;

bool WriteIdx(const fs::path& path, uint32_t magic, const std::vector<int64_t>& sizes,
              const std::vector<uint8_t>& values) {
  std::ofstream file(path, std::ios::binary);
  const auto put = [&file](uint32_t number) {
    for (int shift = 24; shift >= 0; shift -= 8) file.put(static_cast<char>(number >> shift & 0xFF));
  };
  put(magic);
  for (int64_t size : sizes) put(static_cast<uint32_t>(size));
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size()));
  return file.flush().good();
}

bool WriteSplit(const fs::path& folder, const char* prefix, const Split& split) {
  const fs::path images = folder / (std::string(prefix) + "-images-idx3-ubyte");
  const fs::path labels = folder / (std::string(prefix) + "-labels-idx1-ubyte");
  return WriteIdx(images, 0x803, {split.count, split.shape.height, split.shape.width}, split.images) &&
         WriteIdx(labels, 0x801, {split.count}, split.labels);
}

}  // namespace

bool WriteDataset(const fs::path& folder, const Dataset& dataset) {
  fs::create_directories(folder);
  return WriteSplit(folder, "train", dataset.train) && WriteSplit(folder, "t10k", dataset.test);
}

}  // namespace lenet
