#include "client/ctl/text.h"

#include <wchar.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lenet::ctl {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
  bool valid = false;
};

// The character that `text`, which is not empty, begins with. Overlong forms, surrogates and codes above U+10FFFF are
// not valid.
Character FirstCharacter(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  size_t bytes;
  uint32_t code;
  uint32_t least;
  if ((lead & 0xe0) == 0xc0) {
    bytes = 2, code = lead & 0x1f, least = 0x80;
  } else if ((lead & 0xf0) == 0xe0) {
    bytes = 3, code = lead & 0x0f, least = 0x800;
  } else if ((lead & 0xf8) == 0xf0) {
    bytes = 4, code = lead & 0x07, least = 0x10000;
  } else {
    return {};
  }
  if (text.size() < bytes) return {};
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {code, bytes, true};
}

// Controls of ASCII and of Latin-1, the line and paragraph separators, and the marks that reverse the writing
// direction.
bool IsControl(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

template <typename Number>
std::string ShortestForm(Number value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

int Columns(uint32_t code) {
  const int columns = code < 0x80 ? 1 : wcwidth(static_cast<wchar_t>(code));
  return columns < 0 ? 1 : columns;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    if (!character.valid) return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

std::string Printable(absl::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    if (character.valid && !IsControl(character.code)) {
      result.append(text.data(), character.bytes);
    } else {
      result.push_back('?');
    }
    text.remove_prefix(character.bytes);
  }
  return result;
}

int DisplayWidth(absl::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    width += Columns(character.code);
    text.remove_prefix(character.bytes);
  }
  return width;
}

std::string Fit(absl::string_view text, int width) {
  if (DisplayWidth(text) <= width) return std::string(text);
  const absl::string_view mark = width >= 8 ? "..." : "";
  int left = width - static_cast<int>(mark.size());
  std::string result;
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    left -= Columns(character.code);
    if (left < 0) break;
    result.append(text.data(), character.bytes);
    text.remove_prefix(character.bytes);
  }
  return absl::StrCat(result, mark);
}

std::string FormatCount(int64_t value) {
  std::string digits = absl::StrCat(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string FormatLoss(double value) {
  if (std::isnan(value)) return "nan";  // without the sign that some have
  const double size = std::fabs(value);
  if (std::isfinite(value) && value != 0 && (size < 1e-3 || size >= 1e5)) return absl::StrFormat("%.3e", value);
  return absl::StrFormat("%.4f", value);
}

std::string FormatShort(double value) { return absl::StrFormat("%.4g", value); }

std::string FormatExact(double value) { return ShortestForm(value); }
std::string FormatExact(float value) { return ShortestForm(value); }

std::string FormatPercent(double share) { return absl::StrFormat("%.2f %%", 100 * share); }

std::string FormatSeconds(double seconds) {
  if (seconds < 9.995) return absl::StrFormat("%.2f s", seconds);
  if (seconds < 59.95) return absl::StrFormat("%.1f s", seconds);
  return FormatClock(seconds);
}

std::string FormatClock(double seconds) {
  // Beyond some 30 years a time says nothing, and would overflow.
  if (!(seconds < 1e9)) return "-";
  const auto total = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  const int64_t hours = total / 3600;
  const int64_t minutes = total / 60 % 60;
  if (hours > 0) return absl::StrFormat("%d:%02d:%02d", hours, minutes, total % 60);
  return absl::StrFormat("%d:%02d", minutes, total % 60);
}

std::string FormatAge(absl::Duration age) {
  // Another machine's clock may be ahead.
  const int64_t seconds = std::max<int64_t>(absl::ToInt64Seconds(age), 0);
  if (seconds < 60) return absl::StrCat(seconds, " s");
  if (seconds < 3600) return absl::StrCat(seconds / 60, " min");
  if (seconds < 24 * 3600) return absl::StrCat(seconds / 3600, " h");
  return absl::StrCat(FormatCount(seconds / (24 * 3600)), " d");
}

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 999.5) {
    value /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.3g %s", value, kUnits[unit]);
}

absl::Time ToTime(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

std::string FormatTime(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0 && time.nanos() == 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", ToTime(time), absl::LocalTimeZone());
}

std::string StateName(v1::JobState state) {
  const std::string name(v1::JobState_Name(state));
  return name.empty() ? absl::StrCat("state ", static_cast<int>(state)) : absl::AsciiStrToLower(name);
}

std::string FormatFailure(const v1::Failure& failure) {
  std::string who = failure.rank() >= 0 ? absl::StrCat("rank ", failure.rank()) : "";
  if (failure.step() > 0) absl::StrAppend(&who, who.empty() ? "" : " ", "after step ", failure.step());
  return absl::StrCat(who, who.empty() ? "" : ", ", "in ", failure.phase(), ": ", failure.code(), ": ",
                      failure.message());
}

bool IsTerminal(v1::JobState state) { return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::STOPPED; }

}  // namespace lenet::ctl
