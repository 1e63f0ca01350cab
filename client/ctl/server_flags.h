// The flags that say where the server is and how to reach it.
#ifndef LENET_CLIENT_CTL_SERVER_FLAGS_H_
#define LENET_CLIENT_CTL_SERVER_FLAGS_H_

#include <string>

#include "CLI/CLI.hpp"
#include "client/client.h"

namespace lenet::ctl {

class ServerFlags {
 public:
  // `server`: the address if none is given. Adds --server, --tls, --ca, --cert, --key and --token-file; of the last
  // four the environment's LENET_CA, LENET_CERT, LENET_KEY and LENET_TOKEN_FILE hold where they are not given. The
  // object outlives `app`'s parsing.
  void AddTo(CLI::App* app, const std::string& server);

  // Checks what was parsed, reads the files, and sets address and TLS of `options`. Gives what is wrong, or nothing.
  std::string Apply(ClientOptions* options) const;

  // "lenetctl" with the flags that were given, for advice to the user.
  std::string Lenetctl() const;

 private:
  struct Flag {
    CLI::Option* option = nullptr;
    std::string value;
  };

  Flag server_;
  Flag ca_;
  Flag certificate_;
  Flag key_;
  Flag token_;
  bool tls_ = false;
};

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_SERVER_FLAGS_H_
