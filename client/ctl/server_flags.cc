#include "client/ctl/server_flags.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/ctl/value_flags.h"

namespace lenet::ctl {
namespace {

// HOST:PORT, [IPv6]:PORT or unix:PATH; gives what is wrong, or nothing.
std::string CheckAddress(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) return "";
  if (absl::StrContains(address, "://")) {
    return absl::StrCat("server address \"", address, "\" must be HOST:PORT, without http://");
  }
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 || !ParseNumber(address.substr(colon + 1), &port, 1, 65535).empty()) {
    return absl::StrCat("server address \"", address, "\" is not HOST:PORT with a port from 1 to 65535");
  }
  const std::string host = address.substr(0, colon);
  if (absl::StrContains(host, ':') && !(host.front() == '[' && host.back() == ']')) {
    return absl::StrCat("server address \"", address, "\": an IPv6 host stands in brackets, [", host, "]:", port);
  }
  return "";
}

// What no network carries. Not by the text's beginning: 127.example.org may be anyone's.
bool IsThisMachine(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const std::string host = address.substr(0, address.rfind(':'));
  in_addr ipv4 = {};
  if (inet_pton(AF_INET, host.c_str(), &ipv4) == 1) return ntohl(ipv4.s_addr) >> 24 == 127;
  return host == "localhost" || host == "[::1]";
}

// What the file of a flag holds. Gives what is wrong, or nothing.
std::string ReadFileOf(const char* flag, const std::string& path, std::string* content) {
  constexpr size_t kMaxBytes = 1 << 20;
  const std::string error = ReadFile(path, kMaxBytes, content);
  if (!error.empty()) return absl::StrCat(flag, ": '", path, "': ", error);
  if (content->size() > kMaxBytes) return absl::StrCat(flag, ": '", path, "' has more than ", kMaxBytes, " bytes");
  return "";
}

// A token alone, with white space around it.
std::string ReadToken(const char* flag, const std::string& path, std::string* token) {
  std::string error = ReadFileOf(flag, path, token);
  if (!error.empty()) return error;
  *token = std::string(absl::StripAsciiWhitespace(*token));
  if (token->empty() || !std::all_of(token->begin(), token->end(), absl::ascii_isgraph)) {
    return absl::StrCat(flag, ": '", path, "' does not hold one token");
  }
  return "";
}

// As a shell needs it.
std::string Quoted(const std::string& value) {
  const auto plain = [](char c) { return absl::ascii_isalnum(c) || absl::StrContains("-_./:@%+=,[]", c); };
  if (std::all_of(value.begin(), value.end(), plain)) return value;
  return absl::StrCat("'", absl::StrReplaceAll(value, {{"'", "'\\''"}}), "'");
}

// Reads a PEM file with `kind` in it. Gives what is wrong, or nothing. gRPC itself would not name the file.
std::string ReadPem(const char* flag, const std::string& path, const char* kind, std::string* content) {
  if (path.empty()) return "";
  std::string error = ReadFileOf(flag, path, content);
  if (!error.empty()) return error;
  if (absl::StrContains(*content, "ENCRYPTED")) return absl::StrCat(flag, ": '", path, "' asks for a passphrase");
  if (!absl::StrContains(*content, kind)) return absl::StrCat(flag, ": '", path, "' has no ", kind, " in PEM form");
  return "";
}

}  // namespace

void ServerFlags::AddTo(CLI::App* app, const std::string& server) {
  server_.value = server;
  server_.option =
      AddText(app, "--server", "HOST:PORT",
              "The server's address, or unix:PATH; default: LENET_SERVER, or the socket of a lenetd on this machine",
              &server_.value);
  app->add_flag("--tls", tls_, "Encrypt; the server's certificate must lead to one of --ca or the system's roots");
  ca_.option = AddText(app, "--ca", "FILE", "PEM file of roots of the server's certificate; turns TLS on", &ca_.value)
                   ->envname("LENET_CA");
  certificate_.option =
      AddText(app, "--cert", "FILE", "PEM file of your certificate; turns TLS on", &certificate_.value)
          ->envname("LENET_CERT");
  token_.option =
      AddText(app, "--token-file", "FILE", "File with the token by which the server knows you", &token_.value)
          ->envname("LENET_TOKEN_FILE");
  key_.option = AddText(app, "--key", "FILE", "PEM file of its private key", &key_.value)->envname("LENET_KEY");
}

std::string ServerFlags::Apply(ClientOptions* options) const {
  std::string error = CheckAddress(server_.value);
  if (!error.empty()) return error;
  options->address = server_.value;
  TlsOptions& tls = options->tls;
  tls.enabled = tls_ || !ca_.value.empty() || !certificate_.value.empty() || !key_.value.empty();
  if (certificate_.value.empty() != key_.value.empty()) return "--cert and --key go together";
  error = ReadPem("--ca", ca_.value, "CERTIFICATE", &tls.ca);
  if (error.empty()) error = ReadPem("--cert", certificate_.value, "CERTIFICATE", &tls.certificate);
  if (error.empty()) error = ReadPem("--key", key_.value, "PRIVATE KEY", &tls.key);
  if (!error.empty() || token_.value.empty()) return error;
  if (!tls.enabled && !IsThisMachine(server_.value)) {
    return absl::StrCat("the token of --token-file would go to ", server_.value, " for all to read: --tls or --ca");
  }
  return ReadToken("--token-file", token_.value, &options->token);
}

std::string ServerFlags::Lenetctl() const {
  std::string text = "lenetctl";
  for (const Flag* flag : {&server_, &ca_, &certificate_, &key_, &token_}) {
    if (flag->option->count() > 0) absl::StrAppend(&text, " ", flag->option->get_name(), " ", Quoted(flag->value));
  }
  return tls_ ? absl::StrCat(text, " --tls") : text;
}

}  // namespace lenet::ctl
