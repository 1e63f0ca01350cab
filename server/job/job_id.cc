#include "server/job/job_id.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace lenet {
namespace {

// Crockford's base 32, in the order of the characters' codes.
constexpr char kDigits[] = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr int kTimeDigits = 9;
constexpr int kRandomDigits = 7;

}  // namespace

bool IsJobId(absl::string_view text) {
  return text.size() == kTimeDigits + kRandomDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isdigit(c) || absl::ascii_islower(c); });
}

std::string JobIdGenerator::Next(absl::Time now) {
  last_ms_ = std::max(absl::ToUnixMillis(now), last_ms_ + 1);
  std::string id(kTimeDigits + kRandomDigits, '0');
  uint64_t time = static_cast<uint64_t>(last_ms_);
  for (int i = kTimeDigits - 1; i >= 0; --i, time >>= 5) id[static_cast<size_t>(i)] = kDigits[time & 31];
  uint64_t random = (uint64_t{random_()} << 32) | random_();
  for (size_t i = kTimeDigits; i < id.size(); ++i, random >>= 5) id[i] = kDigits[random & 31];
  return id;
}

void JobIdGenerator::StartAfter(absl::string_view id) {
  int64_t time = 0;
  for (const char digit : id.substr(0, kTimeDigits)) {
    const char* const found = std::find(kDigits, kDigits + 32, digit);
    time = time * 32 + (found - kDigits) % 32;
  }
  last_ms_ = std::max(last_ms_, time);
}

}  // namespace lenet
