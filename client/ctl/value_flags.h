// Flags with one value. CLI11 would read numbers as octal or hexadecimal and take an empty value for none.
#ifndef LENET_CLIENT_CTL_VALUE_FLAGS_H_
#define LENET_CLIENT_CTL_VALUE_FLAGS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "CLI/CLI.hpp"

namespace lenet::ctl {

// Reads a decimal number that is the whole text: int32_t, int64_t, uint64_t, float or double. Gives what is wrong, or
// nothing. Numbers with a fraction know no bounds here: they may be NaN, and those beyond their type are infinite.
template <typename Number>
std::string ParseNumber(const std::string& text, Number* value, Number least = std::numeric_limits<Number>::lowest(),
                        Number most = std::numeric_limits<Number>::max());

// Reads a file, or a pipe, but no more than one byte beyond `most`, by which the caller knows one that is too large.
// Gives the system's reason why it cannot be read, or nothing.
std::string ReadFile(const std::string& path, size_t most, std::string* content);

// `parse` takes the value, which is not empty, and gives what is wrong with it, or nothing. `flag` without dashes names
// an argument.
CLI::Option* AddValue(CLI::App* command, const std::string& flag, const std::string& type, const std::string& help,
                      std::function<std::string(const std::string&)> parse);

CLI::Option* AddText(CLI::App* command, const std::string& flag, const std::string& type, const std::string& help,
                     std::string* value);

// An argument that may be given several times.
CLI::Option* AddTexts(CLI::App* command, const std::string& name, const std::string& help,
                      std::vector<std::string>* values);

template <typename Number>
CLI::Option* AddNumber(CLI::App* command, const std::string& flag, const std::string& help,
                       std::optional<Number>* value, Number least = std::numeric_limits<Number>::lowest()) {
  return AddValue(command, flag, std::is_integral_v<Number> ? "N" : "X", help, [=](const std::string& text) {
    Number number;
    std::string error = ParseNumber(text, &number, least);
    if (error.empty()) *value = number;
    return error;
  });
}

// A value that is a list, separated by commas; `parse` takes one item.
CLI::Option* AddList(CLI::App* command, const std::string& flag, const std::string& type, const std::string& help,
                     std::function<std::string(const std::string&)> parse);

CLI::Option* AddIntList(CLI::App* command, const std::string& flag, const std::string& type, const std::string& help,
                        std::vector<int32_t>* values);

// What is wrong with the form of one argument that CLI11 would misread, or nothing: "--flag=" would take the argument
// behind it as its value, and a flag without a value would read "=x" as a number.
std::string CheckForm(const CLI::App& app, const std::string& argument);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_VALUE_FLAGS_H_
