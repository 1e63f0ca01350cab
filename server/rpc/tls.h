// The server's certificates, from files.
#ifndef LENET_SERVER_RPC_TLS_H_
#define LENET_SERVER_RPC_TLS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace grpc {
class ServerCredentials;
}

namespace lenet {

// PEM files; none of them: no encryption.
struct TlsFiles {
  std::string certificate;  // the server's, and those between it and its root behind it
  std::string key;          // of the certificate, without a passphrase
  std::string client_ca;    // roots; if there is one, clients must have a certificate that leads to one of them

  bool any() const { return !certificate.empty() || !key.empty() || !client_ca.empty(); }
};

// INVALID_ARGUMENT, with the flag and the file, if one is missing, does not hold what it should, or is out of date (of
// several roots: if all are), or if the key is not the certificate's.
absl::Status CheckTlsFiles(const TlsFiles& files);

// TLS 1.2 and later. Of files that are right. They are read again as long as the credentials live: new connections get
// what has been in them for some ten seconds.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const TlsFiles& files);

}  // namespace lenet

#endif  // LENET_SERVER_RPC_TLS_H_
