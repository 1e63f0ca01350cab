#include "trainer/data/idx.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/trainer/data/idx_bytes.h"

namespace lenet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kName[] = "dir/some-file";

absl::StatusOr<IdxFile> ParseImages(const Bytes& bytes, int64_t max_bytes = kMaxIdxBytes) {
  return ParseIdx(bytes, kName, IdxKind::kImages, max_bytes);
}

absl::StatusOr<IdxFile> ParseLabels(const Bytes& bytes) { return ParseIdx(bytes, kName, IdxKind::kLabels); }

// The error has this code and names the file, the offset, and each of `parts`.
void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& offset,
                 const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status;
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr(absl::StrFormat("'%s': offset %s: ", kName, offset)));
  for (const std::string& part : parts) EXPECT_THAT(message, HasSubstr(part));
}

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kLost = absl::StatusCode::kDataLoss;

TEST(IdxTest, ReadsImagesAndLabelsPlainAndGzip) {
  const Bytes images = ImagesIdx(3, 4, 5);
  for (const bool gzip : {false, true}) {
    const absl::StatusOr<IdxFile> file = ParseImages(gzip ? Gzip(images) : images);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->name, kName);
    EXPECT_EQ(file->decompressed, gzip);
    EXPECT_EQ(file->header.count, 3);
    EXPECT_EQ(file->header.height, 4);
    EXPECT_EQ(file->header.width, 5);
    EXPECT_EQ(file->values, Bytes(images.begin() + 16, images.end()));
  }
  const Bytes labels = LabelsIdx({0, 9, 255});
  for (const bool gzip : {false, true}) {
    const absl::StatusOr<IdxFile> file = ParseLabels(gzip ? Gzip(labels) : labels);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->header.count, 3);
    EXPECT_EQ(file->values, (Bytes{0, 9, 255}));
  }
}

TEST(IdxTest, ReadsFilesLargerThanItsPieces) {
  const Bytes images = ImagesIdx(3000, 28, 28);  // more than two MiB
  for (const Bytes& bytes : {images, Gzip(images), Gzip(images, /*level=*/0)}) {
    const absl::StatusOr<IdxFile> file = ParseImages(bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->values, Bytes(images.begin() + 16, images.end()));
  }
}

TEST(IdxTest, AnEmptyOrShortFile) {
  ExpectError(ParseImages({}).status(), kLost, "0", {"the file is empty"});
  ExpectError(ParseImages({0, 0, 8}).status(), kLost, "3", {"ends here", "magic number of 4 bytes"});
  Bytes header = ImagesIdx(1, 1, 1);
  header.resize(15);
  ExpectError(ParseImages(header).status(), kLost, "15", {"ends here", "header of 16 bytes"});
  header.resize(4);
  ExpectError(ParseImages(header).status(), kLost, "4", {"ends here", "header of 16 bytes"});
  Bytes labels = LabelsIdx({1});
  labels.resize(7);
  ExpectError(ParseLabels(labels).status(), kLost, "7", {"ends here", "header of 8 bytes"});
  ExpectError(ParseImages(Gzip({})).status(), kLost, "0 after decompression", {"ends here"});
}

TEST(IdxTest, AFileOfAnotherForm) {
  const struct {
    std::string content;
    std::vector<std::string> parts;
  } kCases[] = {{"<!DOCTYPE html><html><body>404</body></html>", {"0x3c21444f", "an HTML or XML page"}},
                {"\xef\xbb\xbf\r\n <html>", {"0xefbbbf0d", "an HTML or XML page"}},
                {"Not found, sorry.", {"0x4e6f7420", "looks like text"}},
                {"version https://git-lfs.github.com/spec/v1\n", {"0x76657273", "a Git LFS pointer"}},
                {std::string("PK\x03\x04\x14\x00\x00", 7), {"0x504b0304", "a zip archive"}},
                {std::string("\xfd\x37zXZ\x00\x00\x04", 8), {"0xfd377a58", "xz data"}},
                {"BZh91AY&SY", {"0x425a6839", "bzip2 data"}},
                {std::string("\x28\xb5\x2f\xfd\x04\x00", 6), {"0x28b52ffd", "zstandard data"}},
                {"\x89PNG\r\n\x1a\n", {"0x89504e47", "a PNG image"}}};
  for (const auto& test : kCases) {
    std::vector<std::string> parts = test.parts;
    parts.push_back("neither an IDX file nor gzip data");
    ExpectError(ParseImages(BytesOf(test.content)).status(), kInvalid, "0", parts);
    parts.back() = "no IDX file";
    ExpectError(ParseImages(Gzip(BytesOf(test.content))).status(), kInvalid, "0 after decompression", parts);
  }
  const absl::Status unknown = ParseImages({0x12, 0x00, 0x05, 0xff}).status();
  ExpectError(unknown, kInvalid, "0", {"0x120005ff", "neither an IDX file nor gzip data"});
  EXPECT_THAT(std::string(unknown.message()), Not(HasSubstr("looks like")));
}

TEST(IdxTest, AWrongMagicNumber) {
  ExpectError(ParseImages(LabelsIdx({1, 2})).status(), kInvalid, "0",
              {"0x00000801 (labels)", "0x00000803 (images) is expected"});
  ExpectError(ParseLabels(ImagesIdx(1, 2, 2)).status(), kInvalid, "0",
              {"0x00000803 (images)", "0x00000801 (labels) is expected"});
  ExpectError(ParseImages(Idx({0xd03, 1, 1, 1}, 4)).status(), kInvalid, "0",
              {"0x00000d03 (float values in 3 dimensions)"});
  ExpectError(ParseImages(Idx({0x802, 1, 1}, 1)).status(), kInvalid, "0",
              {"0x00000802 (unsigned byte values in 2 dimensions)"});
  ExpectError(ParseImages(Idx({0x0, 1, 1, 1}, 1)).status(), kInvalid, "0", {"0x00000000 (no known kind)"});
  ExpectError(ParseImages(Gzip(LabelsIdx({1, 2}))).status(), kInvalid, "0 after decompression",
              {"0x00000801 (labels)"});
  ExpectError(ParseImages({0, 0, 8, 1}).status(), kInvalid, "0", {"0x00000801 (labels)"});
}

TEST(IdxTest, MoreItemsAnnouncedThanPresent) {
  Bytes images = ImagesIdx(10, 28, 28);
  images.pop_back();
  for (const Bytes& bytes : {images, Gzip(images)}) {
    const bool gzip = bytes[0] == 0x1f;
    ExpectError(ParseImages(bytes).status(), kLost, gzip ? "7855 after decompression" : "7855",
                {"ends here", "10 images", "7856 bytes"});
  }
  ExpectError(ParseLabels(Idx({0x801, 3}, 0)).status(), kLost, "8", {"ends here", "3 labels", "11 bytes"});
}

int64_t PeakMemory() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

TEST(IdxTest, TakesNoMemoryForWhatIsNotThere) {
  const Bytes images = Idx({0x803, 0x400000, 30, 34}, 100);
  const int64_t before = PeakMemory();
  ExpectError(ParseImages(images).status(), kLost, "116", {"4194304 images", "4278190096 bytes"});
  ExpectError(ParseImages(Gzip(images)).status(), kLost, "116 after decompression", {"4194304 images"});
  EXPECT_LT(PeakMemory() - before, int64_t{64} << 20);
}

TEST(IdxTest, TrailingBytes) {
  Bytes images = ImagesIdx(2, 3, 3);
  images.push_back(0xab);
  images.push_back(0xcd);
  ExpectError(ParseImages(images).status(), kLost, "34", {"0xab", "2 images"});
  ExpectError(ParseImages(Gzip(images)).status(), kLost, "34 after decompression", {"0xab", "2 images"});
  Bytes labels = LabelsIdx({1, 2});
  labels.push_back(0x0a);
  ExpectError(ParseLabels(labels).status(), kLost, "10", {"0x0a", "2 labels"});
}

TEST(IdxTest, BytesAfterTheGzipData) {
  const Bytes zipped = Gzip(ImagesIdx(2, 3, 3));
  Bytes bytes = zipped;
  bytes.push_back(0x0a);
  ExpectError(ParseImages(bytes).status(), kLost, std::to_string(zipped.size()), {"0x0a follows the end of the gzip"});
  bytes = zipped;  // a second member, as `cat a.gz b.gz` makes
  bytes.insert(bytes.end(), zipped.begin(), zipped.end());
  ExpectError(ParseImages(bytes).status(), kLost, std::to_string(zipped.size()), {"0x1f follows the end of the gzip"});
}

TEST(IdxTest, GzipCutOffAnywhere) {
  const Bytes zipped = Gzip(ImagesIdx(20, 9, 9));
  for (size_t size = 2; size < zipped.size(); ++size) {
    const Bytes cut(zipped.begin(), zipped.begin() + static_cast<std::ptrdiff_t>(size));
    ExpectError(ParseImages(cut).status(), kLost, std::to_string(size), {"end early", "cut off"});
  }
}

// Stored blocks of every length around the reader's piece of 64 KiB, so that the trailer lies in one or straddles two.
TEST(IdxTest, WrongGzipChecksums) {
  constexpr size_t kPiece = size_t{1} << 16;
  for (size_t rows : {size_t{9}, size_t{100}}) {
    for (size_t extra = 0; extra < 48; ++extra) {
      const size_t count = rows == 9 ? extra + 1 : (kPiece - 50) / 100 + 1;
      // The gzip name field moves the rest byte by byte.
      const Bytes content = ImagesIdx(static_cast<uint32_t>(count), static_cast<uint32_t>(rows), 1);
      Bytes zipped = Gzip(content, /*level=*/0);
      zipped[3] |= 0x08;
      zipped.insert(zipped.begin() + 10, extra + 1, 'n');
      zipped[10 + extra] = 0;
      ASSERT_TRUE(ParseImages(zipped).ok()) << ParseImages(zipped).status();

      const uint32_t crc = static_cast<uint32_t>(crc32(0, content.data(), static_cast<uInt>(content.size())));
      Bytes bad = zipped;
      bad[bad.size() - 8] ^= 0x01;
      ExpectError(
          ParseImages(bad).status(), kLost, std::to_string(bad.size() - 8),
          {absl::StrFormat("CRC-32 says 0x%08x", crc ^ 1), absl::StrFormat("decompressed data is 0x%08x", crc)});
      bad = zipped;
      bad[bad.size() - 4] ^= 0x01;
      ExpectError(ParseImages(bad).status(), kLost, std::to_string(bad.size() - 4),
                  {absl::StrFormat("length says %u bytes", content.size() ^ 1),
                   absl::StrFormat("%u were decompressed", content.size())});
    }
  }
}

TEST(IdxTest, DamagedGzipData) {
  const Bytes zipped = Gzip(ImagesIdx(20, 9, 9));
  Bytes bad = zipped;
  bad[2] = 7;  // the method; 8 is deflate
  ExpectError(ParseImages(bad).status(), kLost, "3", {"zlib: unknown compression method", "0x00"});
  bad = zipped;
  bad[10] |= 0x06;  // a block of type 3
  ExpectError(ParseImages(bad).status(), kLost, "10", {"zlib: invalid block type"});
  // A bit that flips anywhere is found, but for those fields of gzip's header that mean nothing here.
  for (size_t i = 0; i < zipped.size(); ++i) {
    bad = zipped;
    bad[i] ^= 0x10;
    const bool unused = i >= 4 && i < 10;  // time, extra flags, system
    EXPECT_EQ(ParseImages(bad).ok(), unused) << i;
  }
}

TEST(IdxTest, AnEmptySet) {
  ExpectError(ParseImages(ImagesIdx(0, 28, 28)).status(), kInvalid, "4", {"the count is 0", "images"});
  ExpectError(ParseLabels(LabelsIdx({})).status(), kInvalid, "4", {"the count is 0", "labels"});
  ExpectError(ParseImages(ImagesIdx(1, 0, 28)).status(), kInvalid, "8", {"0 rows", "1 to 4096"});
  ExpectError(ParseImages(ImagesIdx(1, 28, 0)).status(), kInvalid, "12", {"0 columns", "1 to 4096"});
}

TEST(IdxTest, DimensionsWhoseProductOverflows) {
  constexpr uint32_t kMost = 0xffffffff;
  ExpectError(ParseImages(Idx({0x803, kMost, kMost, kMost}, 9)).status(), kInvalid, "8", {"4294967295 rows"});
  ExpectError(ParseImages(Idx({0x803, kMost, 1, 0x80000000}, 9)).status(), kInvalid, "12", {"2147483648 columns"});
  ExpectError(ParseImages(Idx({0x803, 1, 4097, 1}, 9)).status(), kInvalid, "8", {"4097 rows", "4096"});
  // 2^32 in 32 bits is 0, 2^56 fits in 64.
  ExpectError(ParseImages(Idx({0x803, 0x1000000, 16, 16}, 0)).status(), kInvalid, "4",
              {"16777216 images of 16x16", "4294967296 bytes"});
  ExpectError(ParseImages(Idx({0x803, kMost, 4096, 4096}, 9)).status(), kInvalid, "4",
              {"4294967295 images of 4096x4096", "72057594021150720 bytes", "4294967296"});
  ExpectError(ParseLabels(Idx({0x801, kMost}, 9)).status(), kInvalid, "4", {"4294967295 labels", "4294967296"});
}

TEST(IdxTest, TakesExactlyTheLimit) {
  const Bytes images = ImagesIdx(2, 3, 3);
  EXPECT_TRUE(ParseImages(images, /*max_bytes=*/34).ok());
  ExpectError(ParseImages(images, 33).status(), kInvalid, "4", {"2 images of 3x3", "18 bytes", "33"});
  ExpectError(ParseImages(Gzip(images), 33).status(), kInvalid, "4 after decompression", {"18 bytes"});
}

TEST(IdxFileTest, ReadsFromDisk) {
  TempFolder dir;
  const Bytes images = ImagesIdx(3000, 28, 28);
  for (const Bytes& bytes : {images, Gzip(images)}) {
    PutFile(dir / "f", bytes);
    const absl::StatusOr<IdxFile> file = ReadIdxFile(dir / "f", IdxKind::kImages);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->name, (dir / "f").string());
    EXPECT_EQ(file->values, Bytes(images.begin() + 16, images.end()));
    Bytes cut(bytes.begin(), bytes.end() - 1);
    PutFile(dir / "f", cut);
    EXPECT_EQ(ReadIdxFile(dir / "f", IdxKind::kImages).status().code(), kLost);
  }
  EXPECT_EQ(ReadIdxFile(dir / "none", IdxKind::kImages).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadIdxFile(dir.path(), IdxKind::kImages).status().code(), kInvalid);
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(ReadIdxFile(dir / "fifo", IdxKind::kImages).status().code(), kInvalid);
}

TEST(IdxFileTest, TheHeaderAloneIsReadAlone) {
  TempFolder dir;
  Bytes images = ImagesIdx(3000, 28, 28);
  Bytes zipped = Gzip(images);
  images.resize(16);
  zipped.resize(zipped.size() / 2);
  for (const Bytes& bytes : {images, zipped}) {
    PutFile(dir / "f", bytes);
    const absl::StatusOr<IdxFile> file = ReadIdxHeader(dir / "f", IdxKind::kImages);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->header.count, 3000);
    EXPECT_EQ(file->header.height, 28);
    EXPECT_EQ(file->decompressed, bytes[0] == 0x1f);
    EXPECT_TRUE(file->values.empty());
  }
  EXPECT_EQ(ReadIdxHeader(dir / "f", IdxKind::kLabels).status().code(), kInvalid);
  PutFile(dir / "f", Bytes(images.begin(), images.begin() + 15));
  EXPECT_EQ(ReadIdxHeader(dir / "f", IdxKind::kImages).status().code(), kLost);
}

}  // namespace
}  // namespace lenet
