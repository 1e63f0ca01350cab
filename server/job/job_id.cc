#include "server/job/job_id.h"

#include <algorithm>

namespace lenet {
namespace {

// Crockford's base 32, in the order of the characters' codes.
constexpr char kDigits[] = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr int kTimeDigits = 9;
constexpr int kRandomDigits = 7;

}  // namespace

std::string JobIdGenerator::Next(absl::Time now) {
  last_ms_ = std::max(absl::ToUnixMillis(now), last_ms_ + 1);
  std::string id(kTimeDigits + kRandomDigits, '0');
  uint64_t time = static_cast<uint64_t>(last_ms_);
  for (int i = kTimeDigits - 1; i >= 0; --i, time >>= 5) id[static_cast<size_t>(i)] = kDigits[time & 31];
  uint64_t random = (uint64_t{random_()} << 32) | random_();
  for (size_t i = kTimeDigits; i < id.size(); ++i, random >>= 5) id[i] = kDigits[random & 31];
  return id;
}

}  // namespace lenet
