// The command "lenetd selftest".
#ifndef LENET_SERVER_SELFTEST_COMMAND_H_
#define LENET_SERVER_SELFTEST_COMMAND_H_

namespace lenet {

// argv[0]: the command's name. Prints a table, or JSON. Gives 0 if no check failed, 1 if one did, 2 for a bad command
// line.
int SelftestCommand(int argc, const char* const* argv);

}  // namespace lenet

#endif  // LENET_SERVER_SELFTEST_COMMAND_H_
