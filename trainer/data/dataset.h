// Labelled images in memory.
#ifndef LENET_TRAINER_DATA_DATASET_H_
#define LENET_TRAINER_DATA_DATASET_H_

#include <cstdint>
#include <string>
#include <vector>

namespace lenet {

// Bounds on what a network or an image file may ask for.
inline constexpr int kMaxImageSide = 4096;
inline constexpr int kMaxImageChannels = 4096;

struct ImageShape {
  int channels = 1;
  int height = 0;
  int width = 0;

  int64_t size() const { return int64_t{channels} * height * width; }
  bool operator==(const ImageShape&) const = default;
};

// Images as bytes 0..255, [count, channels, height, width]; a network sees byte / 255. Labels [count], each below
// Dataset::classes.
struct Split {
  ImageShape shape;
  int64_t count = 0;
  std::vector<uint8_t> images;
  std::vector<uint8_t> labels;
};

// Immutable once shared among ranks.
struct Dataset {
  std::string name;
  int classes = 0;  // largest training label + 1
  Split train;
  Split test;
};

}  // namespace lenet

#endif  // LENET_TRAINER_DATA_DATASET_H_
