// Suggestions for misspelt names.
#ifndef LENET_SERVER_NEAREST_NAME_H_
#define LENET_SERVER_NEAREST_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lenet {

// The one of `known` with the least Levenshtein distance to `name`, the first of equals; "" if that distance is more
// than a third of the name's length, or `name` is too long to be one of them.
std::string NearestName(absl::string_view name, const std::vector<std::string>& known);

}  // namespace lenet

#endif  // LENET_SERVER_NEAREST_NAME_H_
