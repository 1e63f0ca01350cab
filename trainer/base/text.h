// Text from elsewhere, made fit to be kept and shown.
#ifndef LENET_TRAINER_BASE_TEXT_H_
#define LENET_TRAINER_BASE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace lenet {

// `text` with '?' for every byte that is not part of valid UTF-8.
std::string ValidUtf8(absl::string_view text);

// Whether `text` has control characters (of ASCII or Latin-1), line or paragraph separators, or marks that reverse the
// direction of writing.
bool HasControls(absl::string_view text);

// Of a reason or a message in a job's record.
inline constexpr size_t kMaxShownBytes = 1024;

// ValidUtf8(text) on one line, of at most `max_bytes`, which are at least 3: what HasControls names is escaped ("\n",
// "\x1b", "\u202e"), and what is too much is cut off, with "…" in its place.
std::string Shown(absl::string_view text, size_t max_bytes = kMaxShownBytes);

}  // namespace lenet

#endif  // LENET_TRAINER_BASE_TEXT_H_
