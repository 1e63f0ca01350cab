// The flags that say where the server is and how to reach it.
#ifndef LENET_CLIENT_CTL_SERVER_FLAGS_H_
#define LENET_CLIENT_CTL_SERVER_FLAGS_H_

#include <optional>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/ctl/context_file.h"

namespace lenet::ctl {

// A flag goes before a variable (LENET_SERVER, LENET_CA, LENET_CERT, LENET_KEY, LENET_TOKEN_FILE), a variable before
// the context, value by value; but --context goes before the variables, and where LENET_SERVER is not used for its
// sake, none of the others is. The context is that of --context, LENET_CONTEXT, or the file's current one; the last two
// count only where neither --server nor LENET_SERVER says which server it is.
class ServerFlags {
 public:
  // `server`: the value of LENET_SERVER, or empty. Adds --server, --context, --tls, --ca, --cert, --key and
  // --token-file. The object outlives `app`'s parsing.
  void AddTo(CLI::App* app, const std::string& server);

  // For the help, after parsing: CLI11 would take the variables' values for those of the flags.
  void ShowVariables();

  // Checks what was parsed, reads the files, and sets address, TLS and token of `options`. Gives what is wrong, or
  // nothing.
  std::string Apply(ClientOptions* options) const;

  // The name of the context in use, where none of --server and LENET_SERVER is given; empty: none.
  absl::StatusOr<std::string> ContextName(const Contexts& contexts) const;

  // What the flags alone say.
  Context Given() const;
  const std::string& context() const { return context_.value; }

  // "lenetctl" with the flags that were given, for advice to the user.
  std::string Lenetctl() const;

 private:
  struct Flag {
    const char* variable = "";
    const char* key = "";  // in a context
    std::string Context::*in_context = nullptr;
    CLI::Option* option = nullptr;
    std::string value;
  };
  struct Value {
    std::string text;
    std::string source;  // what named it
  };
  using NamedContext = std::pair<std::string, Context>;

  absl::StatusOr<std::optional<NamedContext>> UsedContext() const;
  Value ValueOf(const Flag& flag, const std::optional<NamedContext>& context) const;

  std::string server_variable_;
  Flag server_;
  Flag context_;
  Flag ca_ = {"LENET_CA", "ca", &Context::ca};
  Flag certificate_ = {"LENET_CERT", "cert", &Context::cert};
  Flag key_ = {"LENET_KEY", "key", &Context::key};
  Flag token_ = {"LENET_TOKEN_FILE", "token_file", &Context::token_file};
  bool tls_ = false;
};

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_SERVER_FLAGS_H_
