#include "server/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace lenet {
namespace {

constexpr size_t kMaxLength = 128;

// Insertions, deletions and replacements of one character. Row by row of the table of all prefixes' distances (Wagner
// and Fischer 1974).
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string NearestName(absl::string_view name, const std::vector<std::string>& known) {
  if (name.size() > kMaxLength) return "";
  std::string nearest;
  size_t least = name.size() / 3 + 1;
  for (const std::string& candidate : known) {
    const size_t distance = Distance(name, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace lenet
