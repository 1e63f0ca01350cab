// libFuzzer's entry to the IDX reader: whatever the bytes are, it gives a file that fits its header, or an error that
// names the file.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "absl/strings/match.h"
#include "tests/unit/trainer/data/idx_bytes.h"
#include "trainer/data/dataset.h"
#include "trainer/data/idx.h"

namespace {

using lenet::Bytes;
using lenet::IdxFile;
using lenet::IdxKind;

constexpr int64_t kMaxBytes = int64_t{1} << 24;
constexpr char kName[] = "fuzzed-file";

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "the IDX reader broke its promise: %s\n", what);
  std::abort();
}

void CheckFile(const IdxFile& file, IdxKind kind, std::span<const uint8_t> input) {
  const lenet::IdxHeader& header = file.header;
  Require(header.kind == kind, "the kind asked for");
  Require(header.count >= 1, "a count of at least 1");
  Require(header.height >= 1 && header.height <= lenet::kMaxImageSide, "a height in its bounds");
  Require(header.width >= 1 && header.width <= lenet::kMaxImageSide, "a width in its bounds");
  Require(kind == IdxKind::kImages || (header.height == 1 && header.width == 1), "labels of one value");
  Require(static_cast<int64_t>(file.values.size()) == header.value_bytes(), "as many values as announced");
  Require(header.size() + header.value_bytes() <= kMaxBytes, "the limit on bytes");

  // The same file written anew from what was read.
  Bytes bytes;
  lenet::AppendWord(&bytes, kind == IdxKind::kImages ? 0x803 : 0x801);
  lenet::AppendWord(&bytes, static_cast<uint32_t>(header.count));
  if (kind == IdxKind::kImages) {
    lenet::AppendWord(&bytes, static_cast<uint32_t>(header.height));
    lenet::AppendWord(&bytes, static_cast<uint32_t>(header.width));
  }
  bytes.insert(bytes.end(), file.values.begin(), file.values.end());
  if (!file.decompressed)
    Require(bytes == Bytes(input.begin(), input.end()), "every byte of a plain file accounted for");
  const absl::StatusOr<IdxFile> again = lenet::ParseIdx(bytes, kName, kind, kMaxBytes);
  Require(again.ok() && again->values == file.values, "a file written from what was read is read alike");
}

void CheckError(const absl::Status& status) {
  Require(status.code() == absl::StatusCode::kInvalidArgument || status.code() == absl::StatusCode::kDataLoss,
          "the code of an error");
  Require(absl::StartsWith(status.message(), "'fuzzed-file': offset "), "an error that names the file and the offset");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> input(data, size);
  int accepted = 0;
  for (const IdxKind kind : {IdxKind::kImages, IdxKind::kLabels}) {
    const absl::StatusOr<IdxFile> file = lenet::ParseIdx(input, kName, kind, kMaxBytes);
    if (file.ok()) {
      CheckFile(*file, kind, input);
      ++accepted;
    } else {
      CheckError(file.status());
    }
  }
  Require(accepted <= 1, "a file of one kind alone");
  return 0;
}
