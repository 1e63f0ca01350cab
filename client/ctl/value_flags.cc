#include "client/ctl/value_flags.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lenet::ctl {

CLI::Option* AddList(CLI::App* command, const std::string& flag, const std::string& type, const std::string& help,
                     std::function<std::string(const std::string&)> parse) {
  return command
      ->add_option_function<std::string>(
          flag,
          [flag, parse = std::move(parse)](const std::string& list) {
            const std::vector<std::string> items = absl::StrSplit(list, ',');
            for (const std::string& item : items) {
              const std::string error = parse(item);
              if (!error.empty()) throw CLI::ValidationError(flag, error);
            }
          },
          help)
      ->type_name(type);
}

CLI::Option* AddIntList(CLI::App* command, const std::string& flag, const std::string& type, const std::string& help,
                        std::vector<int32_t>* values) {
  return AddList(command, flag, type, help, [values](const std::string& item) {
    int32_t value;
    if (!absl::SimpleAtoi(item, &value)) return absl::StrCat("\"", item, "\" is not a whole number");
    values->push_back(value);
    return std::string();
  });
}

CLI::Option* AddUnsigned(CLI::App* command, const std::string& flag, const std::string& help,
                         std::function<void(uint64_t)> set) {
  return command
      ->add_option_function<std::string>(
          flag,
          [flag, set = std::move(set)](const std::string& text) {
            uint64_t value;
            if (!absl::SimpleAtoi(text, &value)) {
              throw CLI::ValidationError(flag, absl::StrCat("\"", text, "\" is not a whole number from 0 to 2^64 - 1"));
            }
            set(value);
          },
          help)
      ->type_name("N");
}

}  // namespace lenet::ctl
