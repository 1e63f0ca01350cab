// A TOML file as a list of its values, each with its place; the only place of the server that knows a TOML library.
#ifndef LENET_SERVER_TOML_FILE_H_
#define LENET_SERVER_TOML_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lenet {

enum class TomlType { kString, kInteger, kFloat, kBoolean, kDate, kArray, kTable };

// "a string", "an integer", ...
absl::string_view Described(TomlType type);

// Lines and columns count from 1, columns in characters.
struct TomlPlace {
  int line = 0;
  int column = 0;
};

struct TomlValue {
  TomlType type = TomlType::kTable;
  std::string text;  // of a string its content, of numbers and booleans what TOML writes; else empty
  TomlPlace place;
  std::vector<TomlValue> elements;  // of an array
};

struct TomlEntry {
  std::string key;  // with those of its tables: "limits.max_queued"; parts that are no bare keys are quoted
  TomlPlace place;  // the key's
  TomlValue value;  // no table but an empty one: others are their entries
};

// In the order of the file. INVALID_ARGUMENT "line:column: reason" for what is not TOML.
absl::StatusOr<std::vector<TomlEntry>> ParseToml(absl::string_view text);

// `text` as a TOML basic string, in double quotes. Of what is not UTF-8 each byte becomes '?', as TOML has no other
// text.
std::string TomlString(absl::string_view text);

}  // namespace lenet

#endif  // LENET_SERVER_TOML_FILE_H_
