// Macros that pass an absl::Status up, and small helpers to build one.
#ifndef LENET_TRAINER_BASE_STATUS_H_
#define LENET_TRAINER_BASE_STATUS_H_

#include <charconv>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

// Returns from the enclosing function if `expr` (an absl::Status) is not OK.
#define LENET_RETURN_IF_ERROR(expr)                               \
  do {                                                            \
    if (absl::Status lenet_status = (expr); !lenet_status.ok()) { \
      return lenet_status;                                        \
    }                                                             \
  } while (false)

#define LENET_CONCAT_INNER(a, b) a##b
#define LENET_CONCAT(a, b) LENET_CONCAT_INNER(a, b)

// LENET_ASSIGN_OR_RETURN(auto x, F()): binds the value of an absl::StatusOr, or returns its error.
#define LENET_ASSIGN_OR_RETURN(lhs, expr) \
  LENET_ASSIGN_OR_RETURN_IMPL(LENET_CONCAT(lenet_statusor_, __LINE__), lhs, expr)
#define LENET_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                \
  if (!tmp.ok()) return std::move(tmp).status();    \
  lhs = *std::move(tmp)

namespace lenet {

// The same code with `context` and ": " put before the message; OK stays OK.
inline absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

// The shortest decimal form that is read back as the same number.
template <typename T>
std::string Decimal(T number) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), number).ptr);
}

// INVALID_ARGUMENT "field = value: must be bound", the form of every refused value.
template <typename T>
absl::Status BadValue(absl::string_view field, const T& value, absl::string_view bound) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) return BadValue(field, absl::string_view("nan"), bound);  // a NaN's sign means nothing
    return BadValue(field, Decimal(value), bound);
  }
  return absl::InvalidArgumentError(absl::StrCat(field, " = ", value, ": must be ", bound));
}

}  // namespace lenet

#endif  // LENET_TRAINER_BASE_STATUS_H_
