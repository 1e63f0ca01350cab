#include "client/ctl/value_flags.h"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lenet::ctl {

template <typename Number>
std::string ParseNumber(const std::string& text, Number* value, Number least, Number most) {
  // Abseil takes white space around a number for a part of it, and hexadecimal fractions too.
  const bool whole = !text.empty() && !absl::ascii_isspace(text.front()) && !absl::ascii_isspace(text.back()) &&
                     text.find_first_of("xX") == std::string::npos;
  if constexpr (std::is_same_v<Number, float>) {
    return whole && absl::SimpleAtof(text, value) ? "" : absl::StrCat("\"", text, "\" is not a number");
  } else if constexpr (std::is_same_v<Number, double>) {
    return whole && absl::SimpleAtod(text, value) ? "" : absl::StrCat("\"", text, "\" is not a number");
  } else {
    if (whole && absl::SimpleAtoi(text, value) && *value >= least && *value <= most) return "";
    return absl::StrCat("\"", text, "\" is not a whole number from ", least, " to ", most);
  }
}

template std::string ParseNumber(const std::string&, int32_t*, int32_t, int32_t);
template std::string ParseNumber(const std::string&, int64_t*, int64_t, int64_t);
template std::string ParseNumber(const std::string&, uint64_t*, uint64_t, uint64_t);
template std::string ParseNumber(const std::string&, float*, float, float);
template std::string ParseNumber(const std::string&, double*, double, double);

std::string ReadFile(const std::string& path, size_t most, std::string* content) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return std::generic_category().message(errno);
  content->resize(most + 1);
  content->resize(std::fread(content->data(), 1, content->size(), file.get()));
  // A folder opens, and cannot be read.
  return std::ferror(file.get()) != 0 ? std::generic_category().message(errno) : "";
}

CLI::Option* AddValue(CLI::App* command, const std::string& flag, const std::string& type, const std::string& help,
                      std::function<std::string(const std::string&)> parse) {
  return command
      ->add_option_function<std::string>(
          flag,
          [flag, parse = std::move(parse)](const std::string& text) {
            const std::string error = text.empty() ? "the value is empty" : parse(text);
            if (!error.empty()) throw CLI::ValidationError(flag, error);
          },
          help)
      ->type_name(type);
}

CLI::Option* AddText(CLI::App* command, const std::string& flag, const std::string& type, const std::string& help,
                     std::string* value) {
  return AddValue(command, flag, type, help, [value](const std::string& text) {
    *value = text;
    return std::string();
  });
}

CLI::Option* AddTexts(CLI::App* command, const std::string& name, const std::string& help,
                      std::vector<std::string>* values) {
  return command
      ->add_option_function<std::vector<std::string>>(
          name,
          [name, values](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              if (text.empty()) throw CLI::ValidationError(name, "the value is empty");
            }
            *values = texts;
          },
          help)
      ->type_name("");
}

CLI::Option* AddList(CLI::App* command, const std::string& flag, const std::string& type, const std::string& help,
                     std::function<std::string(const std::string&)> parse) {
  return AddValue(command, flag, type, help, [parse = std::move(parse)](const std::string& list) {
    const std::vector<std::string> items = absl::StrSplit(list, ',');
    for (const std::string& item : items) {
      std::string error = parse(item);
      if (!error.empty()) return error;
    }
    return std::string();
  });
}

CLI::Option* AddIntList(CLI::App* command, const std::string& flag, const std::string& type, const std::string& help,
                        std::vector<int32_t>* values) {
  return AddList(command, flag, type, help, [values](const std::string& item) {
    int32_t value;
    std::string error = ParseNumber(item, &value);
    if (error.empty()) values->push_back(value);
    return error;
  });
}

std::string CheckForm(const CLI::App& app, const std::string& argument) {
  const size_t sign = argument.find('=');
  if (!absl::StartsWith(argument, "--") || sign == std::string::npos) return "";
  const std::string flag = argument.substr(0, sign);
  if (sign + 1 == argument.size()) return absl::StrCat(flag, ": the value is empty");
  std::vector<const CLI::App*> commands = app.get_subcommands([](const CLI::App*) { return true; });
  commands.push_back(&app);
  for (const CLI::App* command : commands) {
    const CLI::Option* option = command->get_option_no_throw(flag);
    if (option != nullptr && option->get_items_expected_max() == 0) return absl::StrCat(flag, " takes no value");
  }
  return "";
}

}  // namespace lenet::ctl
