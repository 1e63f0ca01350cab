#include "client/ctl/server_flags.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/ctl/address.h"
#include "client/ctl/default_server.h"
#include "client/ctl/environment.h"
#include "client/ctl/value_flags.h"

namespace lenet::ctl {
namespace {

// What a file holds that `source` names, a flag for one. Gives what is wrong, or nothing.
std::string ReadFileOf(const std::string& source, const std::string& path, std::string* content) {
  constexpr size_t kMaxBytes = 1 << 20;
  const std::string error = ReadFile(path, kMaxBytes, content);
  if (!error.empty()) return absl::StrCat(source, ": '", path, "': ", error);
  if (content->size() > kMaxBytes) return absl::StrCat(source, ": '", path, "' has more than ", kMaxBytes, " bytes");
  return "";
}

// A token alone, with white space around it.
std::string ReadToken(const std::string& source, const std::string& path, std::string* token) {
  std::string error = ReadFileOf(source, path, token);
  if (!error.empty()) return error;
  *token = std::string(absl::StripAsciiWhitespace(*token));
  if (token->empty() || !std::all_of(token->begin(), token->end(), absl::ascii_isgraph)) {
    return absl::StrCat(source, ": '", path, "' does not hold one token");
  }
  return "";
}

// As a shell needs it.
std::string Quoted(const std::string& value) {
  const auto plain = [](char c) { return absl::ascii_isalnum(c) || absl::StrContains("-_./:@%+=,[]", c); };
  if (std::all_of(value.begin(), value.end(), plain)) return value;
  return absl::StrCat("'", absl::StrReplaceAll(value, {{"'", "'\\''"}}), "'");
}

// Reads a PEM file, if there is a path, with `kind` in it. Gives what is wrong, or nothing. gRPC itself would not name
// the file.
std::string ReadPem(const std::string& source, const std::string& path, const char* kind, std::string* content) {
  if (path.empty()) return "";
  std::string error = ReadFileOf(source, path, content);
  if (!error.empty()) return error;
  if (absl::StrContains(*content, "ENCRYPTED")) return absl::StrCat(source, ": '", path, "' asks for a passphrase");
  if (!absl::StrContains(*content, kind)) return absl::StrCat(source, ": '", path, "' has no ", kind, " in PEM form");
  return "";
}

constexpr char kContextVariable[] = "LENET_CONTEXT";

}  // namespace

void ServerFlags::AddTo(CLI::App* app, const std::string& server) {
  server_variable_ = server;
  server_.option = AddText(app, "--server", "HOST:PORT",
                           "The server's address, or unix:PATH; default: LENET_SERVER, or that of the current context, "
                           "or the socket of a lenetd on this machine",
                           &server_.value);
  context_.option = AddText(app, "--context", "NAME",
                            "The context whose server, token and certificates are used; goes before LENET_SERVER and "
                            "the current context",
                            &context_.value);
  app->add_flag("--tls", tls_, "Encrypt; the server's certificate must lead to one of --ca or the system's roots");
  ca_.option = AddText(app, "--ca", "FILE", "PEM file of roots of the server's certificate; turns TLS on", &ca_.value);
  certificate_.option =
      AddText(app, "--cert", "FILE", "PEM file of your certificate; turns TLS on", &certificate_.value);
  token_.option =
      AddText(app, "--token-file", "FILE", "File with the token by which the server knows you", &token_.value);
  key_.option = AddText(app, "--key", "FILE", "PEM file of its private key", &key_.value);
}

void ServerFlags::ShowVariables() {
  context_.option->envname(kContextVariable);
  for (const Flag* flag : {&ca_, &certificate_, &token_, &key_}) flag->option->envname(flag->variable);
}

absl::StatusOr<std::string> ServerFlags::ContextName(const Contexts& contexts) const {
  if (!context_.value.empty()) return context_.value;
  if (std::string name = Variable(kContextVariable); !name.empty()) return name;
  const absl::Status found = contexts.current.empty() ? absl::OkStatus() : contexts.Find(contexts.current).status();
  if (found.ok()) return contexts.current;
  return absl::NotFoundError(absl::StrCat(contexts.path, ":", contexts.current_line, ": current: ", found.message()));
}

absl::StatusOr<std::optional<ServerFlags::NamedContext>> ServerFlags::UsedContext() const {
  // Where the server comes from elsewhere, what a context has is not for it, unless the user says so.
  if (context_.value.empty() && !(server_.value.empty() && server_variable_.empty())) return std::nullopt;
  const absl::StatusOr<Contexts> contexts = ReadContexts(ContextPath());
  if (!contexts.ok()) return contexts.status();
  absl::StatusOr<std::string> name = ContextName(*contexts);
  if (!name.ok()) return name.status();
  if (name->empty()) return std::nullopt;
  absl::StatusOr<Context> context = contexts->Find(*name);
  if (!context.ok()) return context.status();
  return NamedContext{*name, *std::move(context)};
}

ServerFlags::Value ServerFlags::ValueOf(const Flag& flag, const std::optional<NamedContext>& context) const {
  if (!flag.value.empty()) return {flag.value, flag.option->get_name()};
  Value named;
  if (context && !(context->second.*flag.in_context).empty()) {
    named = {context->second.*flag.in_context, absl::StrCat(flag.key, " of the context ", context->first)};
  }
  if (!context_.value.empty()) {
    // What the variables name beside LENET_SERVER is for that server.
    if (!named.text.empty() || !server_variable_.empty()) return named;
  }
  Value variable = {Variable(flag.variable), flag.variable};
  return variable.text.empty() ? named : variable;
}

std::string ServerFlags::Apply(ClientOptions* options) const {
  const absl::StatusOr<std::optional<NamedContext>> used = UsedContext();
  if (!used.ok()) return std::string(used.status().message());
  const std::optional<NamedContext>& context = *used;
  if (!server_.value.empty()) {
    options->address = server_.value;
  } else if (context) {
    options->address = context->second.server;
  } else {
    options->address = server_variable_.empty() ? DefaultServer() : server_variable_;
  }
  std::string error = CheckAddress(options->address);
  if (!error.empty()) return error;
  const Value ca = ValueOf(ca_, context);
  const Value certificate = ValueOf(certificate_, context);
  const Value key = ValueOf(key_, context);
  const Value token = ValueOf(token_, context);
  TlsOptions& tls = options->tls;
  tls.enabled =
      tls_ || (context && context->second.tls) || !ca.text.empty() || !certificate.text.empty() || !key.text.empty();
  if (certificate.text.empty() != key.text.empty()) return "--cert and --key go together";
  error = ReadPem(ca.source, ca.text, "CERTIFICATE", &tls.ca);
  if (error.empty()) error = ReadPem(certificate.source, certificate.text, "CERTIFICATE", &tls.certificate);
  if (error.empty()) error = ReadPem(key.source, key.text, "PRIVATE KEY", &tls.key);
  if (!error.empty() || token.text.empty()) return error;
  if (!tls.enabled && !IsThisMachine(options->address)) {
    return absl::StrCat("the token of ", token.source, " would go to ", options->address,
                        " for all to read: --tls or --ca");
  }
  return ReadToken(token.source, token.text, &options->token);
}

Context ServerFlags::Given() const {
  return {.server = server_.value,
          .tls = tls_,
          .ca = ca_.value,
          .cert = certificate_.value,
          .key = key_.value,
          .token_file = token_.value};
}

std::string ServerFlags::Lenetctl() const {
  std::string text = "lenetctl";
  for (const Flag* flag : {&server_, &context_, &ca_, &certificate_, &key_, &token_}) {
    if (flag->option->count() > 0) absl::StrAppend(&text, " ", flag->option->get_name(), " ", Quoted(flag->value));
  }
  return tls_ ? absl::StrCat(text, " --tls") : text;
}

}  // namespace lenet::ctl
