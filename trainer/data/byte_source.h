// Bytes read once, from start to end: from memory or a file, decompressed if they are gzip.
#ifndef LENET_TRAINER_DATA_BYTE_SOURCE_H_
#define LENET_TRAINER_DATA_BYTE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace lenet {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Reads the next bytes into `out` and gives their number: out.size() unless the source ends first.
  virtual absl::StatusOr<size_t> Read(std::span<uint8_t> out) = 0;

  // Bytes that are known to be left, so that memory may be taken for them; 0 if nothing is known.
  virtual int64_t known_left() const = 0;

  // The file's name, for messages.
  virtual const std::string& name() const = 0;
  // Whether the bytes come out of a gzip file: then an offset counts decompressed bytes.
  virtual bool decompressed() const { return false; }
};

// `bytes` outlives the source.
std::unique_ptr<ByteSource> NewMemorySource(std::span<const uint8_t> bytes, std::string name);

// Errors as InputFile::Open.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenFileSource(const std::filesystem::path& path);

// `input` as it is or, if it begins as gzip does (0x1f 0x8b), its decompressed content: one gzip member (RFC 1952)
// whose CRC-32 and length hold, and nothing behind it. DATA_LOSS names the file, the offset in it and the value that is
// wrong: compressed data that end early or are damaged, a wrong CRC-32 or length, bytes after the member. The last
// three are found by the Read that comes to the end.
absl::StatusOr<std::unique_ptr<ByteSource>> NewDecodedSource(std::unique_ptr<ByteSource> input);

}  // namespace lenet

#endif  // LENET_TRAINER_DATA_BYTE_SOURCE_H_
