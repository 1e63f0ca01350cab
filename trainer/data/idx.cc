#include "trainer/data/idx.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/base/status.h"
#include "trainer/data/byte_source.h"
#include "trainer/data/dataset.h"

namespace lenet {
namespace {

constexpr uint32_t kImagesMagic = 0x00000803;
constexpr uint32_t kLabelsMagic = 0x00000801;

uint32_t MagicOf(IdxKind kind) { return kind == IdxKind::kImages ? kImagesMagic : kLabelsMagic; }
absl::string_view PluralOf(IdxKind kind) { return kind == IdxKind::kImages ? "images" : "labels"; }

uint32_t BigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

std::string Position(absl::string_view name, bool decompressed, int64_t offset) {
  return absl::StrCat("'", name, "': offset ", offset, decompressed ? " after decompression: " : ": ");
}

std::string Position(const ByteSource& source, int64_t offset) {
  return Position(source.name(), source.decompressed(), offset);
}

// What a file that is no IDX file looks like, from its first bytes; empty if it looks like nothing known.
absl::string_view LooksLike(absl::string_view start) {
  struct Form {
    absl::string_view start;
    absl::string_view name;
  };
  static constexpr Form kForms[] = {{"PK\x03\x04", "a zip archive"}, {"BZh", "bzip2 data"},
                                    {"\xfd\x37zXZ", "xz data"},      {"\x28\xb5\x2f\xfd", "zstandard data"},
                                    {"\x89PNG", "a PNG image"},      {"version https://", "a Git LFS pointer"},
                                    {"\x93NUMPY", "a NumPy array"},  {"%PDF", "a PDF document"}};
  for (const Form& form : kForms) {
    if (absl::StartsWith(start, form.start)) return form.name;
  }
  const auto is_text = [](unsigned char c) { return std::isprint(c) || std::isspace(c) || c >= 0x80; };
  absl::string_view text = absl::StartsWith(start, "\xef\xbb\xbf") ? start.substr(3) : start;
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_text)) return "";
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  return absl::StartsWith(text, "<") ? "an HTML or XML page" : "text";
}

// What an IDX magic number says of other kinds of file: 0, 0, type of value, number of dimensions.
std::string DescribeMagic(uint32_t magic) {
  static constexpr struct {
    uint32_t code;
    absl::string_view name;
  } kTypes[] = {{0x08, "unsigned byte"},  {0x09, "signed byte"}, {0x0b, "16-bit integer"},
                {0x0c, "32-bit integer"}, {0x0d, "float"},       {0x0e, "double"}};
  if (magic == kImagesMagic) return "images";
  if (magic == kLabelsMagic) return "labels";
  for (const auto& type : kTypes) {
    if (magic >> 8 == type.code) return absl::StrCat(type.name, " values in ", magic & 0xff, " dimensions");
  }
  return "no known kind";
}

absl::Status MagicError(const ByteSource& source, absl::string_view start, uint32_t magic, IdxKind kind) {
  const std::string position = Position(source, 0);
  if (magic >> 16 == 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%smagic number 0x%08x (%s) where 0x%08x (%s) is expected",
                                                      position, magic, DescribeMagic(magic), MagicOf(kind),
                                                      PluralOf(kind)));
  }
  const absl::string_view form = LooksLike(start);
  return absl::InvalidArgumentError(
      absl::StrFormat("%s0x%08x begins %s%s%s", position, magic,
                      source.decompressed() ? "no IDX file" : "neither an IDX file nor gzip data",
                      form.empty() ? "" : "; it looks like ", form));
}

// Reads the first bytes: the header, and no byte more if the file has the magic number that is expected.
absl::StatusOr<IdxHeader> ReadHeader(ByteSource* source, IdxKind kind, int64_t max_bytes) {
  IdxHeader header = {.kind = kind};
  std::array<uint8_t, 16> bytes;
  const auto ends_early = [&](size_t end, absl::string_view what) {
    if (end == 0 && !source->decompressed()) return absl::DataLossError(Position(*source, 0) + "the file is empty");
    return absl::DataLossError(
        absl::StrCat(Position(*source, static_cast<int64_t>(end)), "the file ends here, in ", what));
  };
  LENET_ASSIGN_OR_RETURN(const size_t magic_bytes, source->Read(std::span(bytes).first(4)));
  if (magic_bytes < 4) return ends_early(magic_bytes, "the magic number of 4 bytes");
  const uint32_t magic = BigEndian(bytes.data());
  const size_t rest = static_cast<size_t>(header.size()) - 4;
  if (magic != MagicOf(kind)) {
    LENET_ASSIGN_OR_RETURN(const size_t more, source->Read(std::span(bytes).subspan(4)));
    return MagicError(*source, absl::string_view(reinterpret_cast<const char*>(bytes.data()), 4 + more), magic, kind);
  }
  LENET_ASSIGN_OR_RETURN(const size_t more, source->Read(std::span(bytes).subspan(4, rest)));
  if (more < rest) return ends_early(4 + more, absl::StrCat("the header of ", header.size(), " bytes"));

  header.count = BigEndian(&bytes[4]);
  if (header.count == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Position(*source, 4), "the count is 0; a set needs at least 1 of its ", PluralOf(kind)));
  }
  if (kind == IdxKind::kImages) {
    for (const int64_t offset : {8, 12}) {
      const uint32_t side = BigEndian(&bytes[static_cast<size_t>(offset)]);
      if (side < 1 || side > kMaxImageSide) {
        return absl::InvalidArgumentError(absl::StrCat(Position(*source, offset), "images have ", side,
                                                       offset == 8 ? " rows" : " columns", "; it must be 1 to ",
                                                       kMaxImageSide));
      }
      (offset == 8 ? header.height : header.width) = static_cast<int>(side);
    }
  }
  // At most 2^32 * 2^12 * 2^12: no overflow.
  if (header.value_bytes() > max_bytes - header.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Position(*source, 4), header.count, " ", PluralOf(kind),
                     kind == IdxKind::kImages ? absl::StrCat(" of ", header.height, "x", header.width) : "", " take ",
                     header.value_bytes(), " bytes; a file may have ", max_bytes));
  }
  return header;
}

// Reads `total` bytes, or up to the end if that comes first; gives the number read.
absl::StatusOr<size_t> ReadGrowing(ByteSource* source, size_t total, const CancelCheck& cancelled,
                                   std::vector<uint8_t>* values) {
  constexpr size_t kFirstBytes = size_t{1} << 20;
  constexpr size_t kMaxRead = size_t{4} << 20;
  size_t done = 0;
  try {
    while (done < total) {
      const size_t present = done + static_cast<size_t>(source->known_left());
      values->resize(std::min(total, std::max({2 * done, present, kFirstBytes})));
      while (done < values->size()) {
        if (cancelled && cancelled()) return absl::CancelledError(absl::StrCat("'", source->name(), "': not read on"));
        const size_t wanted = std::min(values->size() - done, kMaxRead);
        LENET_ASSIGN_OR_RETURN(const size_t got, source->Read(std::span(*values).subspan(done, wanted)));
        done += got;
        if (got < wanted) return done;
      }
    }
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("'", source->name(), "': no memory for its ", total, " bytes"));
  }
  return done;
}

absl::StatusOr<IdxFile> StartFile(ByteSource* source, IdxKind kind, int64_t max_bytes) {
  LENET_ASSIGN_OR_RETURN(const IdxHeader header, ReadHeader(source, kind, max_bytes));
  return IdxFile{.name = source->name(), .decompressed = source->decompressed(), .header = header};
}

absl::StatusOr<IdxFile> ReadAll(std::unique_ptr<ByteSource> input, IdxKind kind, const CancelCheck& cancelled,
                                int64_t max_bytes) {
  LENET_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, NewDecodedSource(std::move(input)));
  LENET_ASSIGN_OR_RETURN(IdxFile file, StartFile(source.get(), kind, max_bytes));
  const int64_t announced = file.header.value_bytes();
  LENET_ASSIGN_OR_RETURN(const size_t got,
                         ReadGrowing(source.get(), static_cast<size_t>(announced), cancelled, &file.values));
  const int64_t end = file.header.size() + static_cast<int64_t>(got);
  if (static_cast<int64_t>(got) < announced) {
    return absl::DataLossError(absl::StrCat(Position(*source, end), "the file ends here, but the header's count of ",
                                            file.header.count, " ", PluralOf(kind), " needs ",
                                            file.header.size() + announced, " bytes"));
  }
  uint8_t extra = 0;
  LENET_ASSIGN_OR_RETURN(const size_t extra_bytes, source->Read(std::span(&extra, 1)));
  if (extra_bytes > 0) {
    return absl::DataLossError(absl::StrFormat("%sbyte 0x%02x follows the last of the %d %s that the header announces",
                                               Position(*source, end), extra, file.header.count, PluralOf(kind)));
  }
  return file;
}

}  // namespace

std::string IdxPosition(const IdxFile& file, int64_t offset) { return Position(file.name, file.decompressed, offset); }

absl::StatusOr<IdxFile> ReadIdxFile(const std::filesystem::path& path, IdxKind kind, const CancelCheck& cancelled,
                                    int64_t max_bytes) {
  LENET_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, OpenFileSource(path));
  return ReadAll(std::move(source), kind, cancelled, max_bytes);
}

absl::StatusOr<IdxFile> ParseIdx(std::span<const uint8_t> bytes, std::string name, IdxKind kind, int64_t max_bytes) {
  return ReadAll(NewMemorySource(bytes, std::move(name)), kind, {}, max_bytes);
}

absl::StatusOr<IdxFile> ReadIdxHeader(const std::filesystem::path& path, IdxKind kind, int64_t max_bytes) {
  LENET_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> input, OpenFileSource(path));
  LENET_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, NewDecodedSource(std::move(input)));
  return StartFile(source.get(), kind, max_bytes);
}

}  // namespace lenet
