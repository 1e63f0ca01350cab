#include "client/ctl/server_flags.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

// Reads a PEM file with `kind` in it. Gives what is wrong, or nothing. gRPC itself would not name the file.
std::string ReadPem(const char* flag, const std::string& path, const char* kind, std::string* content) {
  if (path.empty()) return "";
  std::ifstream file(path, std::ios::binary);
  content->assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) return absl::StrCat(flag, ": '", path, "': ", std::strerror(errno));
  if (!absl::StrContains(*content, kind)) return absl::StrCat(flag, ": '", path, "' has no ", kind, " in PEM form");
  return "";
}

}  // namespace

void ServerFlags::AddTo(CLI::App* app, const std::string& server) {
  server_.value = server;
  server_.option = AddText(app, "--server", "HOST:PORT",
                           "The server's address; default: LENET_SERVER, or 127.0.0.1:50051", &server_.value);
  app->add_flag("--tls", tls_, "Encrypt; the server's certificate must lead to one of --ca or the system's roots");
  ca_.option = AddText(app, "--ca", "FILE", "PEM file of roots of the server's certificate, with --tls", &ca_.value)
                   ->envname("LENET_CA");
  certificate_.option = AddText(app, "--cert", "FILE", "PEM file of your certificate, with --tls", &certificate_.value)
                            ->envname("LENET_CERT");
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
  return error;
}

std::string ServerFlags::Lenetctl() const {
  std::string text = "lenetctl";
  for (const Flag* flag : {&server_, &ca_, &certificate_, &key_}) {
    if (flag->option->count() > 0) absl::StrAppend(&text, " ", flag->option->get_name(), " ", flag->value);
  }
  return tls_ ? absl::StrCat(text, " --tls") : text;
}

}  // namespace lenet::ctl
