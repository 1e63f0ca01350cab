// Flags with values that CLI11 does not read as wanted.
#ifndef LENET_CLIENT_CTL_VALUE_FLAGS_H_
#define LENET_CLIENT_CTL_VALUE_FLAGS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace lenet::ctl {

// One value that is a list, separated by commas. `parse` takes one item and gives what is wrong with it, or nothing.
CLI::Option* AddList(CLI::App* command, const std::string& flag, const std::string& type, const std::string& help,
                     std::function<std::string(const std::string&)> parse);

CLI::Option* AddIntList(CLI::App* command, const std::string& flag, const std::string& type, const std::string& help,
                        std::vector<int32_t>* values);

// A whole number from 0 to 2^64 - 1; "-1" is an error.
CLI::Option* AddUnsigned(CLI::App* command, const std::string& flag, const std::string& help,
                         std::function<void(uint64_t)> set);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_VALUE_FLAGS_H_
