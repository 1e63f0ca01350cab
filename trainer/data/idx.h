// IDX files of bytes, as the MNIST family's: a big-endian header, then the values, row by row. Plain or gzip, told
// apart by content. (The format: LeCun, Cortes and Burges, "The MNIST database of handwritten digits".)
#ifndef LENET_TRAINER_DATA_IDX_H_
#define LENET_TRAINER_DATA_IDX_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lenet {

enum class IdxKind {
  kImages,  // magic number 0x00000803, then count, rows, columns; values from offset 16
  kLabels,  // magic number 0x00000801, then count; values from offset 8
};

// Whether reading is to end early, asked every few megabytes; empty: never.
using CancelCheck = std::function<bool()>;

// No file may hold more bytes, decompressed.
inline constexpr int64_t kMaxIdxBytes = int64_t{4} << 30;

struct IdxHeader {
  IdxKind kind = IdxKind::kImages;
  int64_t count = 0;  // >= 1
  int height = 1;     // 1 .. kMaxImageSide; 1 for labels
  int width = 1;

  int64_t size() const { return kind == IdxKind::kImages ? 16 : 8; }  // bytes
  int64_t value_bytes() const { return count * height * width; }
};

struct IdxFile {
  std::string name;  // for messages
  bool decompressed = false;
  IdxHeader header;
  std::vector<uint8_t> values;  // images [count, height, width] or labels [count]
};

// The whole file, checked: INVALID_ARGUMENT for what is not an IDX file of this kind, is empty, or is larger than
// `max_bytes`; DATA_LOSS for what ends early, has bytes too many, or fails gzip's checks; OpenFileSource's errors;
// CANCELLED. Each names the file, the offset and the value that is wrong. Memory grows with what the file holds, not
// with what its header announces.
absl::StatusOr<IdxFile> ReadIdxFile(const std::filesystem::path& path, IdxKind kind, const CancelCheck& cancelled = {},
                                    int64_t max_bytes = kMaxIdxBytes);

// The same of a file's bytes in memory.
absl::StatusOr<IdxFile> ParseIdx(std::span<const uint8_t> bytes, std::string name, IdxKind kind,
                                 int64_t max_bytes = kMaxIdxBytes);

// The header alone, `values` empty; what follows it may still be damaged.
absl::StatusOr<IdxFile> ReadIdxHeader(const std::filesystem::path& path, IdxKind kind,
                                      int64_t max_bytes = kMaxIdxBytes);

// "'<file>': offset 8: ", or "... offset 8 after decompression: ", to begin a message about a value.
std::string IdxPosition(const IdxFile& file, int64_t offset);

}  // namespace lenet

#endif  // LENET_TRAINER_DATA_IDX_H_
