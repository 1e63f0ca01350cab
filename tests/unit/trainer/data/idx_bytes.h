// Bytes of IDX and gzip files, for tests.
#ifndef LENET_TESTS_UNIT_TRAINER_DATA_IDX_BYTES_H_
#define LENET_TESTS_UNIT_TRAINER_DATA_IDX_BYTES_H_

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace lenet {

using Bytes = std::vector<uint8_t>;

inline Bytes BytesOf(const std::string& text) { return Bytes(text.begin(), text.end()); }

inline void AppendWord(Bytes* bytes, uint32_t word) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes->push_back(static_cast<uint8_t>(word >> shift));
}

// Big-endian words, then `values` bytes that count up.
inline Bytes Idx(const std::vector<uint32_t>& header, size_t values) {
  Bytes bytes;
  for (const uint32_t word : header) AppendWord(&bytes, word);
  for (size_t i = 0; i < values; ++i) bytes.push_back(static_cast<uint8_t>(i * 7));
  return bytes;
}

inline Bytes ImagesIdx(uint32_t count, uint32_t rows, uint32_t columns) {
  return Idx({0x803, count, rows, columns}, size_t{count} * rows * columns);
}

inline Bytes LabelsIdx(const Bytes& labels) {
  Bytes bytes = Idx({0x801, static_cast<uint32_t>(labels.size())}, 0);
  bytes.insert(bytes.end(), labels.begin(), labels.end());
  return bytes;
}

// `count` labels 0, 1, ..., classes - 1, 0, ...
inline Bytes CyclicLabelsIdx(uint32_t count, uint32_t classes) {
  Bytes labels(count);
  for (uint32_t i = 0; i < count; ++i) labels[i] = static_cast<uint8_t>(i % classes);
  return LabelsIdx(labels);
}

inline Bytes Gzip(const Bytes& bytes, int level = 6) {
  z_stream stream = {};
  if (deflateInit2(&stream, level, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  Bytes out(deflateBound(&stream, bytes.size()));
  stream.next_in = const_cast<uint8_t*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  const int code = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (code != Z_STREAM_END) throw std::runtime_error("deflate");
  return out;
}

inline void PutFile(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace lenet

#endif  // LENET_TESTS_UNIT_TRAINER_DATA_IDX_BYTES_H_
