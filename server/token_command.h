// The command "lenetd token".
#ifndef LENET_SERVER_TOKEN_COMMAND_H_
#define LENET_SERVER_TOKEN_COMMAND_H_

namespace lenet {

// argv[0]: the command's name. Prints a new token, once, and adds its rule to the access file. Gives an exit code.
int TokenCommand(int argc, const char* const* argv);

}  // namespace lenet

#endif  // LENET_SERVER_TOKEN_COMMAND_H_
