#include "trainer/data/byte_source.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/base/file.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::span<const uint8_t> bytes, std::string name) : left_(bytes), name_(std::move(name)) {}

  absl::StatusOr<size_t> Read(std::span<uint8_t> out) override {
    const size_t count = std::min(out.size(), left_.size());
    std::copy_n(left_.begin(), count, out.begin());
    left_ = left_.subspan(count);
    return count;
  }
  int64_t known_left() const override { return static_cast<int64_t>(left_.size()); }
  const std::string& name() const override { return name_; }

 private:
  std::span<const uint8_t> left_;
  const std::string name_;
};

class FileSource final : public ByteSource {
 public:
  FileSource(InputFile file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}

  absl::StatusOr<size_t> Read(std::span<uint8_t> out) override {
    LENET_ASSIGN_OR_RETURN(const size_t got, file_.Read(std::as_writable_bytes(out)));
    left_ = std::max<int64_t>(left_ - static_cast<int64_t>(got), 0);
    return got;
  }
  int64_t known_left() const override { return left_; }
  const std::string& name() const override { return name_; }

 private:
  InputFile file_;
  int64_t left_ = file_.size();
  const std::string name_;
};

// Looks at the first bytes, then hands them and the rest on, or inflates them.
class DecodedSource final : public ByteSource {
 public:
  explicit DecodedSource(std::unique_ptr<ByteSource> input) : input_(std::move(input)) {}
  ~DecodedSource() override {
    if (gzip_) ::inflateEnd(&stream_);
  }
  DecodedSource(const DecodedSource&) = delete;
  DecodedSource& operator=(const DecodedSource&) = delete;

  absl::Status Start();
  absl::StatusOr<size_t> Read(std::span<uint8_t> out) override { return gzip_ ? Inflate(out) : Copy(out); }
  int64_t known_left() const override { return gzip_ ? 0 : int64_t{stream_.avail_in} + input_->known_left(); }
  const std::string& name() const override { return input_->name(); }
  bool decompressed() const override { return gzip_; }

 private:
  static constexpr size_t kChunk = size_t{1} << 16;
  // Bytes kept before a chunk, so that the gzip trailer can be quoted when it straddles two.
  static constexpr size_t kKept = 8;

  absl::Status Refill();
  absl::StatusOr<size_t> Copy(std::span<uint8_t> out);
  absl::StatusOr<size_t> Inflate(std::span<uint8_t> out);
  absl::Status CheckNothingFollows();
  absl::Status InflateError(int code) const;
  // The little-endian word that lies right before the next byte of input.
  uint32_t LastWord() const;
  int64_t offset() const { return consumed_ + (stream_.next_in - (buffer_.data() + kKept)); }

  absl::Status Error(int64_t offset, absl::string_view what) const {
    return absl::DataLossError(absl::StrCat("'", name(), "': offset ", offset, ": ", what));
  }

  const std::unique_ptr<ByteSource> input_;
  std::array<uint8_t, kKept + kChunk> buffer_ = {};
  z_stream stream_ = {};  // next_in and avail_in are the unread part of buffer_, also of a plain file
  int64_t consumed_ = 0;  // bytes of the chunks before this one
  bool gzip_ = false;
  bool ended_ = false;
};

absl::Status DecodedSource::Start() {
  LENET_RETURN_IF_ERROR(Refill());
  const uint8_t* first = stream_.next_in;
  if (stream_.avail_in < 2 || first[0] != 0x1f || first[1] != 0x8b) return absl::OkStatus();
  constexpr int kGzipOnly = 16;
  if (const int code = ::inflateInit2(&stream_, MAX_WBITS + kGzipOnly); code != Z_OK) return InflateError(code);
  gzip_ = true;
  return absl::OkStatus();
}

absl::Status DecodedSource::Refill() {
  uint8_t* const chunk = buffer_.data() + kKept;
  if (stream_.next_in != nullptr) {
    const size_t used = static_cast<size_t>(stream_.next_in - chunk);
    std::memmove(buffer_.data(), buffer_.data() + used, kKept);
    consumed_ += static_cast<int64_t>(used);
  }
  LENET_ASSIGN_OR_RETURN(const size_t got, input_->Read(std::span(chunk, kChunk)));
  stream_.next_in = chunk;
  stream_.avail_in = static_cast<uInt>(got);
  return absl::OkStatus();
}

absl::StatusOr<size_t> DecodedSource::Copy(std::span<uint8_t> out) {
  const size_t buffered = std::min<size_t>(out.size(), stream_.avail_in);
  std::copy_n(stream_.next_in, buffered, out.begin());
  stream_.next_in += buffered;
  stream_.avail_in -= static_cast<uInt>(buffered);
  if (buffered == out.size()) return buffered;
  LENET_ASSIGN_OR_RETURN(const size_t got, input_->Read(out.subspan(buffered)));
  return buffered + got;
}

absl::StatusOr<size_t> DecodedSource::Inflate(std::span<uint8_t> out) {
  constexpr size_t kMaxPiece = size_t{1} << 30;  // zlib counts in 32 bits
  size_t done = 0;
  while (done < out.size() && !ended_) {
    if (stream_.avail_in == 0) LENET_RETURN_IF_ERROR(Refill());
    const size_t room = std::min(out.size() - done, kMaxPiece);
    stream_.next_out = out.data() + done;
    stream_.avail_out = static_cast<uInt>(room);
    const bool input_ended = stream_.avail_in == 0;
    const int code = ::inflate(&stream_, Z_NO_FLUSH);
    done += room - stream_.avail_out;
    if (code == Z_STREAM_END) {
      LENET_RETURN_IF_ERROR(CheckNothingFollows());
      ended_ = true;
    } else if (code == Z_BUF_ERROR && input_ended) {
      return Error(offset(), absl::StrCat("the gzip data end early, after ", stream_.total_out,
                                          " decompressed bytes; the file is cut off"));
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return InflateError(code);
    }
  }
  return done;
}

absl::Status DecodedSource::CheckNothingFollows() {
  if (stream_.avail_in == 0) LENET_RETURN_IF_ERROR(Refill());
  if (stream_.avail_in == 0) return absl::OkStatus();
  return Error(offset(), absl::StrFormat("byte 0x%02x follows the end of the gzip data", *stream_.next_in));
}

uint32_t DecodedSource::LastWord() const {
  uint32_t word = 0;
  for (int i = 1; i <= 4; ++i) word = word << 8 | stream_.next_in[-i];
  return word;
}

absl::Status DecodedSource::InflateError(int code) const {
  const absl::string_view reason = stream_.msg != nullptr ? stream_.msg : ::zError(code);
  if (code == Z_MEM_ERROR) {
    return absl::ResourceExhaustedError(absl::StrCat("'", name(), "': no memory to decompress it"));
  }
  // zlib has just consumed the word of the trailer that it found wrong.
  if (reason == "incorrect data check") {
    return Error(offset() - 4, absl::StrFormat("the CRC-32 says 0x%08x, but that of the decompressed data is 0x%08x",
                                               LastWord(), static_cast<uint32_t>(stream_.adler)));
  }
  if (reason == "incorrect length check") {
    return Error(offset() - 4, absl::StrFormat("the length says %u bytes, but %u were decompressed", LastWord(),
                                               static_cast<uint32_t>(stream_.total_out)));
  }
  return Error(offset() - 1, absl::StrFormat("damaged gzip data (zlib: %s); the last byte read is 0x%02x", reason,
                                             stream_.next_in[-1]));
}

}  // namespace

std::unique_ptr<ByteSource> NewMemorySource(std::span<const uint8_t> bytes, std::string name) {
  return std::make_unique<MemorySource>(bytes, std::move(name));
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenFileSource(const std::filesystem::path& path) {
  LENET_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  return std::make_unique<FileSource>(std::move(file), path.string());
}

absl::StatusOr<std::unique_ptr<ByteSource>> NewDecodedSource(std::unique_ptr<ByteSource> input) {
  auto source = std::make_unique<DecodedSource>(std::move(input));
  LENET_RETURN_IF_ERROR(source->Start());
  return source;
}

}  // namespace lenet
