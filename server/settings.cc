#include "server/settings.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/rpc/listener.h"
#include "server/toml_file.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr double kMinSeconds = 0.001;  // the least that does not become 0
constexpr double kMaxSeconds = 86400;
constexpr int kMaxDays = 36500;
constexpr size_t kMaxJobs = 1'000'000;
constexpr size_t kMostAtOnce = 100'000;  // calls, streams, connections
constexpr int kMinRequestBytes = 1 << 16;
constexpr int kMaxRequestBytes = 1 << 26;

enum class Takes { kAtStart, kWhileRunning };

using TextCheck = absl::Status (*)(const std::string& text);

absl::Status CheckListen(const std::string& text) { return ParseListenAddress(text).status(); }

absl::Status CheckPath(const std::string& text) {
  return text.empty() ? absl::InvalidArgumentError("the path is empty") : absl::OkStatus();
}

absl::Status CheckMetricsListen(const std::string& text) {
  if (text == kNoMetrics) return absl::OkStatus();
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(text);
  if (!address.ok()) return address.status();
  if (address->unix_path.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("must be host:port, or ", kNoMetrics));
}

absl::Status AnyText(const std::string&) { return absl::OkStatus(); }

absl::Status MustBe(absl::string_view accepts) { return absl::InvalidArgumentError(absl::StrCat("must be ", accepts)); }

// A function that gives a member of a configuration, or a member's member.
template <typename T>
auto In(T ServerConfig::*member) {
  return [member](auto& config) -> auto& { return config.*member; };
}
template <typename S, typename T>
auto In(S ServerConfig::*outer, T S::*inner) {
  return [ outer, inner ](auto& config) -> auto& { return (config.*outer).*inner; };
}

template <typename Field>
using TypeIn = std::decay_t<std::invoke_result_t<Field, ServerConfig&>>;

// All but `set` and `get`.
template <typename Field>
Setting Common(SettingType type, const std::string& key, Field field, Takes takes, const std::string& accepts,
               const std::string& help) {
  return {.key = key,
          .type = type,
          .reloadable = takes == Takes::kWhileRunning,
          .accepts = accepts,
          .help = help,
          .copy = [field](const ServerConfig& from, ServerConfig* to) { field(*to) = field(from); }};
}

// Of text or a path.
template <typename Field>
Setting Text(const std::string& key, Field field, Takes takes, TextCheck check, const std::string& help) {
  Setting setting = Common(SettingType::kText, key, field, takes, "", help);
  setting.set = [field, check](const std::vector<std::string>& values, ServerConfig* config) -> absl::Status {
    LENET_RETURN_IF_ERROR(check(values.front()));
    field(*config) = values.front();
    return absl::OkStatus();
  };
  setting.get = [field](const ServerConfig& config) { return std::vector{std::string(field(config))}; };
  return setting;
}

// `what` is what each value is.
template <typename Field>
Setting List(const std::string& key, Field field, Takes takes, const std::string& what, TextCheck check,
             const std::string& help) {
  Setting setting = Common(SettingType::kList, key, field, takes, "", help);
  setting.set = [=](const std::vector<std::string>& values, ServerConfig* config) -> absl::Status {
    if (values.empty()) return MustBe("at least one " + what);
    for (const std::string& value : values) LENET_RETURN_IF_ERROR(check(value));
    field(*config).assign(values.begin(), values.end());
    return absl::OkStatus();
  };
  setting.get = [field](const ServerConfig& config) {
    return std::vector<std::string>(field(config).begin(), field(config).end());
  };
  return setting;
}

template <typename Field>
Setting Integer(const std::string& key, Field field, Takes takes, TypeIn<Field> least, TypeIn<Field> most,
                const std::string& help) {
  const std::string accepts = absl::StrCat(least, " to ", most);
  Setting setting = Common(SettingType::kInteger, key, field, takes, accepts, help);
  setting.set = [=](const std::vector<std::string>& values, ServerConfig* config) -> absl::Status {
    TypeIn<Field> number = 0;
    if (!absl::SimpleAtoi(values.front(), &number) || number < least || number > most) return MustBe(accepts);
    field(*config) = number;
    return absl::OkStatus();
  };
  setting.get = [field](const ServerConfig& config) { return std::vector{absl::StrCat(field(config))}; };
  return setting;
}

template <typename Field>
Setting Seconds(const std::string& key, Field field, Takes takes, const std::string& help) {
  const std::string accepts = absl::StrCat("0, or ", kMinSeconds, " to ", kMaxSeconds, " seconds");
  Setting setting = Common(SettingType::kNumber, key, field, takes, accepts, help);
  setting.set = [=](const std::vector<std::string>& values, ServerConfig* config) -> absl::Status {
    double seconds = 0;
    // A NaN is outside, too.
    const bool inside = absl::SimpleAtod(values.front(), &seconds) &&
                        (seconds == 0 || (seconds >= kMinSeconds && seconds <= kMaxSeconds));
    if (!inside) return MustBe(accepts);
    field(*config) = std::chrono::milliseconds(std::llround(seconds * 1000));
    return absl::OkStatus();
  };
  setting.get = [field](const ServerConfig& config) {
    return std::vector{Decimal(static_cast<double>(field(config).count()) / 1000)};
  };
  return setting;
}

// One of some words, each of which stands for a value.
template <typename Field>
Setting Choice(const std::string& key, Field field, Takes takes,
               const std::vector<std::pair<std::string, TypeIn<Field>>>& choices, const std::string& help,
               SettingType type = SettingType::kText) {
  const std::string accepts =
      absl::StrJoin(choices, ", ", [](std::string* out, const auto& choice) { out->append(choice.first); });
  Setting setting = Common(type, key, field, takes, accepts, help);
  setting.set = [=](const std::vector<std::string>& values, ServerConfig* config) -> absl::Status {
    for (const auto& [name, value] : choices) {
      if (name != values.front()) continue;
      field(*config) = value;
      return absl::OkStatus();
    }
    return MustBe("one of " + accepts);
  };
  setting.get = [=](const ServerConfig& config) {
    std::vector<std::string> values;
    for (const auto& [name, value] : choices) {
      if (value == field(config)) values.push_back(name);
    }
    return values;
  };
  return setting;
}

template <typename Field>
Setting Boolean(const std::string& key, Field field, Takes takes, const std::string& help) {
  return Choice(key, field, takes, {{"true", true}, {"false", false}}, help, SettingType::kBoolean);
}

Setting Listen() {
  Setting setting = List("listen", In(&ServerConfig::listen), Takes::kAtStart, "address", CheckListen,
                         "Address to serve on, unix:path or host:port, where port 0 takes any free one; may be given "
                         "more than once, and replaces the default");
  setting.separator = ',';  // addresses have colons
  setting.get = [](const ServerConfig& config) {
    return config.listen.empty() ? std::vector{DefaultListen()} : config.listen;
  };
  return setting;
}

}  // namespace

const std::vector<Setting>& Settings() {
  // Never destroyed: another thread may read it while the process ends.
  static const auto* const settings = new std::vector<Setting>{
      Listen(),
      Text("port_file", In(&ServerConfig::port_file), Takes::kAtStart, AnyText,
           "File to write the addresses to, a line each and TCP first, once the server serves; goes when it does"),
      Text("tls_cert", In(&ServerConfig::tls, &TlsFiles::certificate), Takes::kAtStart, AnyText,
           "PEM file of the server's certificate; turns TLS on"),
      Text("tls_key", In(&ServerConfig::tls, &TlsFiles::key), Takes::kAtStart, AnyText, "PEM file of its private key"),
      Text("tls_client_ca", In(&ServerConfig::tls, &TlsFiles::client_ca), Takes::kAtStart, AnyText,
           "PEM file of the roots of clients' certificates; clients without one are turned away"),
      Text("access_file", In(&ServerConfig::access_file), Takes::kAtStart, AnyText,
           "File of rules that give clients their roles, see lenetd token; without: all who connect may do all"),
      Boolean("insecure", In(&ServerConfig::insecure), Takes::kAtStart,
              "Serve without TLS where other machines reach the address: they can start and stop jobs"),
      Text("metrics_listen", In(&ServerConfig::metrics_listen), Takes::kAtStart, CheckMetricsListen,
           "Address that serves /metrics to Prometheus, host:port; \"off\": none"),
      Text("state_dir", In(&ServerConfig::state_dir), Takes::kAtStart, CheckPath,
           "Folder for jobs, their metrics and their checkpoints; one lenetd at a time"),
      List("data_dir", In(&ServerConfig::data_dirs), Takes::kWhileRunning, "path", CheckPath,
           "Folder of data sets; may be given more than once, and replaces the defaults"),
      Text("plugin_dir", In(&ServerConfig::plugin_dir), Takes::kAtStart, AnyText, "Folder of the backends' libraries"),
      Choice("backend", In(&ServerConfig::backend), Takes::kAtStart,
             {{"auto", "auto"}, {"cpu", "cpu"}, {"cuda", "cuda"}},
             "Devices to train on; auto takes GPUs if there are any"),
      Choice("log_level", In(&ServerConfig::log_level), Takes::kWhileRunning,
             {{"debug", LogLevel::kDebug},
              {"info", LogLevel::kInfo},
              {"warning", LogLevel::kWarning},
              {"error", LogLevel::kError}},
             "Least severe lines to log"),
      Seconds("jobs.drain_timeout", In(&ServerConfig::drain_timeout), Takes::kAtStart,
              "Seconds that running jobs get to stop at shutdown"),
      Choice("jobs.on_restart", In(&ServerConfig::running_jobs_go_on), Takes::kAtStart,
             {{"resume", true}, {"fail", false}},
             "What becomes of jobs that ran when lenetd was killed, not shut down: resume them from their last "
             "checkpoint, or fail them"),
      Seconds("jobs.collective_timeout", In(&ServerConfig::collective_timeout), Takes::kAtStart,
              "Seconds that ranks may stand still in a collective before the job fails; 0: for ever"),
      Integer("limits.max_queued", In(&ServerConfig::max_queued), Takes::kWhileRunning, 1, kMaxJobs,
              "Jobs that may wait, paused ones among them"),
      Integer("limits.max_jobs_per_client", In(&ServerConfig::max_jobs_per_client), Takes::kWhileRunning, 0, kMaxJobs,
              "Jobs that have not ended that one client may have; 0: no limit"),
      Integer("limits.max_job_days", In(&ServerConfig::max_job_days), Takes::kWhileRunning, 0, kMaxDays,
              "Days after which an ended job is forgotten; 0: never by its age"),
      Integer("limits.max_calls", In(&ServerConfig::rpc, &RpcLimits::max_calls), Takes::kWhileRunning, 1, kMostAtOnce,
              "Calls that may be answered at once, streams aside"),
      Integer("limits.max_calls_per_client", In(&ServerConfig::rpc, &RpcLimits::max_calls_per_client),
              Takes::kWhileRunning, 0, kMostAtOnce,
              "Calls of one client address, or user on unix sockets, that may be answered at once; 0: as many as in "
              "all"),
      Integer("limits.max_streams", In(&ServerConfig::rpc, &RpcLimits::max_streams), Takes::kWhileRunning, 1,
              kMostAtOnce, "Streams that may be open"),
      Integer("limits.max_streams_per_client", In(&ServerConfig::rpc, &RpcLimits::max_streams_per_client),
              Takes::kWhileRunning, 0, kMostAtOnce, "Streams that one client may have open; 0: no limit"),
      Integer("limits.max_connections", In(&ServerConfig::rpc, &RpcLimits::max_connections), Takes::kWhileRunning, 1,
              kMostAtOnce, "Connections that may be open"),
      Integer("limits.max_connections_per_client", In(&ServerConfig::rpc, &RpcLimits::max_connections_per_client),
              Takes::kWhileRunning, 0, kMostAtOnce,
              "Connections that one client address, or user on unix sockets, may have open; 0: no limit"),
      Integer("limits.max_resets_per_client", In(&ServerConfig::rpc, &RpcLimits::max_resets_per_client),
              Takes::kWhileRunning, 0, kMostAtOnce,
              "Calls that one client address, or user on unix sockets, may take back within a second of their begin, in "
              "10 seconds; 0: no limit"),
      Integer("limits.max_calls_per_connection", In(&ServerConfig::rpc, &RpcLimits::max_calls_per_connection),
              Takes::kAtStart, 1, kMostAtOnce, "Calls that one connection may carry at once, streams among them"),
      Integer("limits.max_request_bytes", In(&ServerConfig::rpc, &RpcLimits::max_request_bytes), Takes::kAtStart,
              kMinRequestBytes, kMaxRequestBytes, "Bytes of a request"),
      Seconds("limits.max_idle_time", In(&ServerConfig::rpc, &RpcLimits::max_idle_time), Takes::kAtStart,
              "Seconds after which a connection without a call is closed; 0: never"),
  };
  return *settings;
}

std::string Setting::table() const {
  const size_t dot = key.find('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

std::string Setting::name() const { return key.substr(key.find('.') + 1); }

std::string Setting::flag() const { return absl::StrCat("--", absl::StrReplaceAll(name(), {{"_", "-"}})); }

std::string Setting::variable() const { return absl::StrCat(kVariablePrefix, absl::AsciiStrToUpper(name())); }

const Setting* FindSetting(absl::string_view key) {
  const auto found = std::find_if(Settings().begin(), Settings().end(),
                                  [&](const Setting& setting) { return absl::string_view(setting.key) == key; });
  return found == Settings().end() ? nullptr : &*found;
}

std::string TomlOf(const Setting& setting, const ServerConfig& config) {
  const bool quoted = setting.type == SettingType::kText || setting.type == SettingType::kList;
  const std::string text = absl::StrJoin(setting.get(config), ", ", [&](std::string* out, const std::string& value) {
    out->append(quoted ? TomlString(value) : value);
  });
  return setting.type == SettingType::kList ? absl::StrCat("[", text, "]") : text;
}

}  // namespace lenet
