#include "server/rpc/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "trainer/base/file.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr int64_t kMaxBytes = 1 << 20;
constexpr unsigned kSecondsBetweenReads = 10;

template <typename T, void (*kFree)(T*)>
struct Freed {
  void operator()(T* object) const { kFree(object); }
};
using Bio = std::unique_ptr<BIO, Freed<BIO, BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;

// An error of a file, known by the flag that names it.
absl::Status Wrong(absl::string_view flag, const std::string& path, absl::string_view what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": '", path, "' ", what));
}

absl::StatusOr<std::string> Read(absl::string_view flag, const std::string& path) {
  absl::StatusOr<std::string> content = ReadFile(path, kMaxBytes);
  if (!content.ok()) return absl::InvalidArgumentError(absl::StrCat(flag, ": ", content.status().message()));
  return content;
}

Bio BytesOf(const std::string& content) {
  return Bio(BIO_new_mem_buf(content.data(), static_cast<int>(content.size())));
}

std::string ToText(const ASN1_TIME* time) {
  tm fields = {};
  if (ASN1_TIME_to_tm(time, &fields) != 1) return "an unknown time";
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::FromTM(fields, absl::UTCTimeZone()), absl::UTCTimeZone());
}

// In the place of a question on the terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

// Empty if the certificate is valid now.
std::string WhyNotNow(const X509* certificate) {
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    return absl::StrCat("has been out of date since ", ToText(X509_get0_notAfter(certificate)));
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    return absl::StrCat("is not valid before ", ToText(X509_get0_notBefore(certificate)));
  }
  return std::string();
}

// All certificates of a PEM file, of which the first must be valid now, or with `any` one of them.
absl::StatusOr<std::vector<Certificate>> ReadCertificates(absl::string_view flag, const std::string& path, bool any) {
  LENET_ASSIGN_OR_RETURN(const std::string content, Read(flag, path));
  const Bio bio = BytesOf(content);
  std::vector<Certificate> certificates;
  while (X509* const next = PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr))
    certificates.emplace_back(next);
  const unsigned long last = ERR_peek_last_error();  // NOLINT(runtime/int): OpenSSL's type
  if (certificates.empty()) return Wrong(flag, path, "has no certificate in PEM form");
  if (ERR_GET_REASON(last) != PEM_R_NO_START_LINE) {
    return Wrong(flag, path, absl::StrCat("is damaged behind certificate ", certificates.size()));
  }
  ERR_clear_error();
  const std::string why_not = WhyNotNow(certificates.front().get());
  const bool valid = std::any_of(certificates.begin(), any ? certificates.end() : certificates.begin() + 1,
                                 [](const Certificate& certificate) { return WhyNotNow(certificate.get()).empty(); });
  if (!valid) return Wrong(flag, path, why_not);
  return certificates;
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (!files.any()) return absl::OkStatus();
  if (files.certificate.empty()) return absl::InvalidArgumentError("--tls-cert is needed for TLS");
  if (files.key.empty()) return absl::InvalidArgumentError("--tls-key is needed for TLS");
  LENET_ASSIGN_OR_RETURN(const std::vector<Certificate> certificates,
                         ReadCertificates("--tls-cert", files.certificate, /*any=*/false));
  LENET_ASSIGN_OR_RETURN(const std::string key_content, Read("--tls-key", files.key));
  const Key key(PEM_read_bio_PrivateKey(BytesOf(key_content).get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) return Wrong("--tls-key", files.key, "has no private key in PEM form without a passphrase");
  if (X509_check_private_key(certificates.front().get(), key.get()) != 1) {
    return Wrong("--tls-key", files.key, absl::StrCat("is not the key of '", files.certificate, "'"));
  }
  if (files.client_ca.empty()) return absl::OkStatus();
  return ReadCertificates("--tls-client-ca", files.client_ca, /*any=*/true).status();
}

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const TlsFiles& files) {
  namespace tls = grpc::experimental;
  tls::TlsServerCredentialsOptions options(std::make_shared<tls::FileWatcherCertificateProvider>(
      files.key, files.certificate, files.client_ca, kSecondsBetweenReads));
  options.watch_identity_key_cert_pairs();
  if (!files.client_ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return tls::TlsServerCredentials(options);
}

}  // namespace lenet
