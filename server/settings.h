// lenetd's settings, each described once.
#ifndef LENET_SERVER_SETTINGS_H_
#define LENET_SERVER_SETTINGS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/config.h"

namespace lenet {

enum class SettingType { kText, kInteger, kNumber, kBoolean, kList };

// Its value is written down and shown, so none may be a secret: what is secret lies in a file that a setting names.
struct Setting {
  std::string key;  // in the file: "name", or "table.name"; the name alone is unique
  SettingType type = SettingType::kText;
  bool reloadable = false;  // can change while lenetd runs
  std::string accepts;      // "1 to 1000000"; empty: any, or what `set` refuses needs more words
  std::string help;
  char separator = ':';  // between the values of a list in a variable
  // Takes the values, one unless it is a list. An error is what is wrong with them, as in "must be 1 to 1000000", and
  // changes nothing.
  std::function<absl::Status(const std::vector<std::string>& values, ServerConfig* config)> set;
  // The values that set() takes.
  std::function<std::vector<std::string>(const ServerConfig& config)> get;
  std::function<void(const ServerConfig& from, ServerConfig* to)> copy;

  std::string table() const;     // "limits", or empty
  std::string name() const;      // "max_queued"
  std::string flag() const;      // "--max-queued"
  std::string variable() const;  // "LENETD_MAX_QUEUED"
};

inline constexpr char kVariablePrefix[] = "LENETD_";

// All of them, in the order in which they are shown: those of one table stand together, those without one first.
const std::vector<Setting>& Settings();

// Null if there is none.
const Setting* FindSetting(absl::string_view key);

// The setting's value in TOML.
std::string TomlOf(const Setting& setting, const ServerConfig& config);

}  // namespace lenet

#endif  // LENET_SERVER_SETTINGS_H_
