#include "trainer/base/text.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace lenet {
namespace {

constexpr absl::string_view kEllipsis = "\u2026";

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: not valid
};

// The character that `text`, which is not empty, begins with. Overlong forms, surrogates and codes above U+10FFFF are
// not valid.
Character First(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = (lead & 0xe0) == 0xc0 ? 2 : (lead & 0xf0) == 0xe0 ? 3 : (lead & 0xf8) == 0xf0 ? 4 : 0;
  if (bytes == 0 || text.size() < bytes) return {};
  uint32_t code = lead & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const uint32_t least = bytes == 2 ? 0x80 : bytes == 3 ? 0x800 : 0x10000;
  if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {code, bytes};
}

bool IsControl(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string Escaped(uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  if (code < 0x80) return absl::StrCat("\\x", absl::Hex(code, absl::kZeroPad2));
  return absl::StrCat("\\u", absl::Hex(code, absl::kZeroPad4));
}

}  // namespace

std::string ValidUtf8(absl::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = First(text).bytes;
    if (bytes == 0) {
      valid.push_back('?');
    } else {
      valid.append(text.data(), bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return valid;
}

bool HasControls(absl::string_view text) {
  while (!text.empty()) {
    const Character first = First(text);
    if (first.bytes > 0 && IsControl(first.code)) return true;
    text.remove_prefix(first.bytes == 0 ? 1 : first.bytes);
  }
  return false;
}

std::string Shown(absl::string_view text, size_t max_bytes) {
  std::string shown;
  size_t cut = 0;  // where it may end for the ellipsis to fit
  while (!text.empty()) {
    const Character first = First(text);
    if (first.bytes == 0) {
      shown.push_back('?');
    } else if (IsControl(first.code)) {
      shown.append(Escaped(first.code));
    } else {
      shown.append(text.data(), first.bytes);
    }
    if (shown.size() > max_bytes) {
      shown.resize(cut);
      return shown.append(kEllipsis.data(), kEllipsis.size());
    }
    if (shown.size() + kEllipsis.size() <= max_bytes) cut = shown.size();
    text.remove_prefix(first.bytes == 0 ? 1 : first.bytes);
  }
  return shown;
}

}  // namespace lenet
