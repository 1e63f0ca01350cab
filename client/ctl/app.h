// lenetctl without the process around it.
#ifndef LENET_CLIENT_CTL_APP_H_
#define LENET_CLIENT_CTL_APP_H_

#include <atomic>
#include <string>
#include <vector>

#include "client/ctl/output.h"

namespace lenet::ctl {

// Runs one command and gives the exit code. `arguments` without the program's name; `server` is the value of
// LENET_SERVER, or empty; `cancelled` becomes true when the user wants to leave.
int RunApp(const std::vector<std::string>& arguments, const std::string& server, const std::atomic<bool>* cancelled,
           Output* output);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_APP_H_
