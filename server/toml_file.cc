#include "server/toml_file.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "trainer/base/status.h"
#include "trainer/base/text.h"

// All of toml++ in this file, and errors as values. Some malformed texts break its assertions (3.3.0), but are errors
// behind them: with NDEBUG clang would take them for granted, without it they would end the process.
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ASSERT(expression) static_cast<void>(0)
#pragma push_macro("NDEBUG")
#undef NDEBUG
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace lenet {
namespace {

TomlPlace Place(const toml::source_region& region) {
  return {.line = static_cast<int>(region.begin.line), .column = static_cast<int>(region.begin.column)};
}

TomlValue Value(const toml::node& node) {
  TomlValue value = {.place = Place(node.source())};
  if (const auto* const text = node.as_string()) {
    value.type = TomlType::kString;
    value.text = text->get();
  } else if (const auto* const integer = node.as_integer()) {
    value.type = TomlType::kInteger;
    value.text = absl::StrCat(integer->get());
  } else if (const auto* const number = node.as_floating_point()) {
    value.type = TomlType::kFloat;
    value.text = Decimal(number->get());
  } else if (const auto* const boolean = node.as_boolean()) {
    value.type = TomlType::kBoolean;
    value.text = boolean->get() ? "true" : "false";
  } else if (const toml::array* const array = node.as_array()) {
    value.type = TomlType::kArray;
    for (const toml::node& element : *array) value.elements.push_back(Value(element));
  } else {
    value.type = node.is_table() ? TomlType::kTable : TomlType::kDate;
  }
  return value;
}

bool IsBareKey(absl::string_view key) {
  const auto allowed = [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; };
  return !key.empty() && std::all_of(key.begin(), key.end(), allowed);
}

void AddEntries(const toml::table& table, const std::string& prefix, std::vector<TomlEntry>* entries) {
  for (const auto& [key, node] : table) {
    const absl::string_view part(key.str().data(), key.str().size());
    const std::string name = absl::StrCat(prefix, IsBareKey(part) ? std::string(part) : TomlString(part));
    const toml::table* const inner = node.as_table();
    if (inner != nullptr && !inner->empty()) {
      AddEntries(*inner, name + ".", entries);
    } else {
      entries->push_back({.key = name, .place = Place(key.source()), .value = Value(node)});
    }
  }
}

}  // namespace

absl::string_view Described(TomlType type) {
  switch (type) {
    case TomlType::kString:
      return "a string";
    case TomlType::kInteger:
      return "an integer";
    case TomlType::kFloat:
      return "a float";
    case TomlType::kBoolean:
      return "a boolean";
    case TomlType::kDate:
      return "a date or time";
    case TomlType::kArray:
      return "an array";
    case TomlType::kTable:
      break;
  }
  return "a table";
}

absl::StatusOr<std::vector<TomlEntry>> ParseToml(absl::string_view text) {
  const toml::parse_result result = toml::parse(std::string_view(text.data(), text.size()));
  if (!result) {
    const TomlPlace place = Place(result.error().source());
    const std::string_view reason = result.error().description();
    return absl::InvalidArgumentError(
        absl::StrCat(place.line, ":", place.column, ": ", absl::string_view(reason.data(), reason.size())));
  }
  std::vector<TomlEntry> entries;
  AddEntries(result.table(), "", &entries);
  const auto order = [](const TomlEntry& entry) { return std::tie(entry.place.line, entry.place.column); };
  std::sort(entries.begin(), entries.end(),
            [&](const TomlEntry& a, const TomlEntry& b) { return order(a) < order(b); });
  return entries;
}

std::string TomlString(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : ValidUtf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppend(&quoted, "\\u", absl::Hex(byte, absl::kZeroPad4));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace lenet
