#include "server/config.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "server/environment.h"
#include "server/nearest_name.h"
#include "server/settings.h"
#include "server/toml_file.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;

constexpr char kNoFile[] = "/dev/null";
constexpr int64_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxValueBytes = 200;  // shown in an error

std::string DidYouMean(const std::string& nearest) {
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

std::string At(const fs::path& file, const TomlPlace& place) {
  return absl::StrCat(file.string(), ":", place.line, ":", place.column);
}

bool IsTable(absl::string_view key) {
  return std::any_of(Settings().begin(), Settings().end(),
                     [&](const Setting& setting) { return absl::string_view(setting.table()) == key; });
}

// The key that was meant by one that there is not: perhaps in another table, or with the flag's hyphens.
std::string NearestKey(absl::string_view unknown) {
  const std::string key = absl::StrReplaceAll(unknown, {{"-", "_"}});
  const std::string name = key.substr(key.rfind('.') + 1);
  std::vector<std::string> keys;
  std::vector<std::string> names;
  for (const Setting& setting : Settings()) {
    if (setting.name() == name) return setting.key;
    keys.push_back(setting.key);
    names.push_back(setting.name());
  }
  std::string nearest = NearestName(key, keys);
  if (!nearest.empty()) return nearest;
  const auto found = std::find(names.begin(), names.end(), NearestName(name, names));
  return found == names.end() ? "" : keys[found - names.begin()];
}

bool Fits(TomlType value, SettingType setting) {
  switch (setting) {
    case SettingType::kInteger:
      return value == TomlType::kInteger;
    case SettingType::kNumber:
      return value == TomlType::kInteger || value == TomlType::kFloat;
    case SettingType::kBoolean:
      return value == TomlType::kBoolean;
    case SettingType::kText:
    case SettingType::kList:
      break;
  }
  return value == TomlType::kString;
}

absl::string_view Wanted(SettingType type) {
  switch (type) {
    case SettingType::kInteger:
      return "an integer";
    case SettingType::kNumber:
      return "a number";
    case SettingType::kBoolean:
      return "a boolean";
    case SettingType::kList:
      return "an array of strings";
    case SettingType::kText:
      break;
  }
  return "a string";
}

// " = 5"; nothing for what has no short form.
std::string Assigned(const TomlValue& value) {
  if (value.type == TomlType::kString) return absl::StrCat(" = ", Shown(TomlString(value.text), kMaxValueBytes));
  return value.text.empty() ? "" : absl::StrCat(" = ", value.text);
}

// Takes one source after the other, each of which goes before those before it, and collects what is wrong.
class Loader {
 public:
  Loader() {
    loaded_.config.data_dirs = DefaultDataDirs();
    loaded_.config.state_dir = DefaultStateDir();
    for (const Setting& setting : Settings()) loaded_.origins[setting.key] = "default";
  }

  void TakeFile(const fs::path& file, bool may_lack) {
    if (file == kNoFile) return;
    const absl::StatusOr<std::string> text = ReadFile(file, kMaxFileBytes);
    if (may_lack && absl::IsNotFound(text.status())) return;
    if (!text.ok()) return Refuse("configuration file", text.status().message());
    loaded_.file_found = true;
    const absl::StatusOr<std::vector<TomlEntry>> entries = ParseToml(*text);
    if (!entries.ok()) return Refuse(absl::StrCat(file.string(), ":", entries.status().message()));
    for (const TomlEntry& entry : *entries) TakeEntry(file, entry);
  }

  void TakeEnvironment(const std::map<std::string, std::string>& environment) {
    std::map<std::string, const Setting*> settings;
    std::vector<std::string> names = {kConfigVariable};
    for (const Setting& setting : Settings()) {
      settings[setting.variable()] = &setting;
      names.push_back(setting.variable());
    }
    for (const auto& [name, value] : environment) {
      const auto found = settings.find(name);
      if (found == settings.end()) {
        // Without its value, which may be another program's secret.
        Refuse(name, absl::StrCat("there is no such setting", DidYouMean(NearestName(name, names))));
      } else if (!value.empty()) {
        const bool list = found->second->type == SettingType::kList;
        const std::vector<std::string> values =
            list ? absl::StrSplit(value, found->second->separator) : std::vector{value};
        Set(*found->second, values, name, absl::StrCat(name, " = ", Shown(TomlString(value), kMaxValueBytes)));
      }
    }
  }

  void TakeFlags(const std::map<std::string, std::vector<std::string>>& flags) {
    for (const auto& [key, values] : flags) {
      const Setting& setting = *FindSetting(key);
      const std::string text = absl::StrJoin(
          values, ", ", [](std::string* out, const std::string& value) { out->append(TomlString(value)); });
      const std::string shown = absl::StrCat(setting.flag(), " = ", Shown(text, kMaxValueBytes));
      // What a shell makes of a variable that is not set must not turn off what the file turns on.
      if (std::find(values.begin(), values.end(), "") != values.end()) {
        Refuse(shown, "the value is empty");
      } else {
        Set(setting, values, setting.flag(), shown);
      }
    }
  }

  LoadedConfig Loaded() && { return std::move(loaded_); }

 private:
  void Refuse(absl::string_view error) { loaded_.errors.push_back(Shown(error)); }
  void Refuse(absl::string_view where, absl::string_view reason) { Refuse(absl::StrCat(where, ": ", reason)); }

  void TakeEntry(const fs::path& file, const TomlEntry& entry) {
    const TomlValue& value = entry.value;
    const Setting* const setting = FindSetting(entry.key);
    if (setting != nullptr) return TakeValue(*setting, file, entry);
    if (!IsTable(entry.key)) {
      Refuse(absl::StrCat(At(file, entry.place), ": ", entry.key),
             absl::StrCat("there is no such setting", DidYouMean(NearestKey(entry.key))));
    } else if (value.type != TomlType::kTable) {
      Refuse(absl::StrCat(At(file, value.place), ": ", entry.key, Assigned(value)),
             absl::StrCat("must be a table, not ", Described(value.type)));
    }
  }

  void TakeValue(const Setting& setting, const fs::path& file, const TomlEntry& entry) {
    const TomlValue& value = entry.value;
    // A list of one may be written without brackets.
    const bool array = setting.type == SettingType::kList && value.type == TomlType::kArray;
    std::vector<std::string> values;
    for (const TomlValue& element : array ? value.elements : std::vector{value}) {
      if (!Fits(element.type, setting.type)) {
        const std::string bound = setting.accepts.empty() ? "" : absl::StrCat(" (", setting.accepts, ")");
        return Refuse(absl::StrCat(At(file, element.place), ": ", setting.key, Assigned(element)),
                      absl::StrCat("must be ", Wanted(array ? SettingType::kText : setting.type), bound, ", not ",
                                   Described(element.type)));
      }
      values.push_back(element.text);
    }
    Set(setting, values, absl::StrCat(file.string(), ":", entry.place.line),
        absl::StrCat(At(file, value.place), ": ", setting.key, Assigned(value)));
  }

  // `shown` is the value with its name and place, for an error.
  void Set(const Setting& setting, const std::vector<std::string>& values, std::string origin,
           absl::string_view shown) {
    for (const std::string& value : values) {
      if (value.find('\0') != std::string::npos) return Refuse(shown, "must be without NUL characters");
    }
    const absl::Status set = setting.set(values, &loaded_.config);
    if (!set.ok()) return Refuse(shown, set.message());
    loaded_.origins[setting.key] = std::move(origin);
  }

  LoadedConfig loaded_;
};

}  // namespace

fs::path DefaultStateDir() {
  if (const std::string systemd = Environment("STATE_DIRECTORY"); !systemd.empty()) {
    return systemd.substr(0, systemd.find(':'));
  }
  if (const std::string xdg = Environment("XDG_STATE_HOME"); !xdg.empty()) return fs::path(xdg) / "lenetd";
  if (const std::string home = Environment("HOME"); !home.empty()) return fs::path(home) / ".local/state/lenetd";
  return "/var/lib/lenet";
}

std::string DefaultListen() {
  const auto folder = []() -> fs::path {
    if (const std::string systemd = Environment("RUNTIME_DIRECTORY"); !systemd.empty()) {
      return systemd.substr(0, systemd.find(':'));
    }
    if (::geteuid() == 0) return kSharedRuntimeFolder;
    if (const std::string xdg = Environment("XDG_RUNTIME_DIR"); !xdg.empty()) return fs::path(xdg) / "lenet";
    return DefaultStateDir();
  };
  return absl::StrCat("unix:", (folder() / "lenetd.sock").string());
}

std::vector<fs::path> DefaultDataDirs() {
  std::vector<fs::path> dirs = {"/usr/share/datasets", "/var/lib/lenet/datasets"};
  if (const std::string xdg = Environment("XDG_DATA_HOME"); !xdg.empty()) {
    dirs.push_back(fs::path(xdg) / "lenet/datasets");
  } else if (const std::string home = Environment("HOME"); !home.empty()) {
    dirs.push_back(fs::path(home) / ".local/share/lenet/datasets");
  }
  return dirs;
}

LoadedConfig LoadConfig(const ConfigSources& sources) {
  Loader loader;
  loader.TakeFile(sources.file, sources.file_may_lack);
  loader.TakeEnvironment(sources.environment);
  loader.TakeFlags(sources.flags);
  return std::move(loader).Loaded();
}

std::string ConfigText(const ConfigSources& sources, const LoadedConfig& loaded) {
  std::string text = absl::StrCat("# lenetd's configuration; its file: ", Shown(sources.file.string()),
                                  loaded.file_found || sources.file == kNoFile ? "" : ", which is not there", "\n");
  std::string table;
  for (const Setting& setting : Settings()) {
    if (setting.table() != table) {
      table = setting.table();
      absl::StrAppend(&text, "\n[", table, "]\n");
    }
    absl::StrAppend(&text, setting.name(), " = ", TomlOf(setting, loaded.config), "  # ",
                    Shown(loaded.origins.at(setting.key)), "\n");
  }
  return text;
}

}  // namespace lenet
