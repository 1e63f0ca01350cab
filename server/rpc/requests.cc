#include "server/rpc/requests.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/job/job_id.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;
// More than any job has.
constexpr int kMaxRanksAsked = 1024;
// Losses a second: a filter that lets all pass.
constexpr double kMaxRate = 1e9;

}  // namespace

absl::Status CheckJobId(absl::string_view id) {
  return id.empty() ? absl::InvalidArgumentError("job_id = \"\": must name a job") : absl::OkStatus();
}

absl::StatusOr<JobQuery> ToQuery(const v1::ListJobsRequest& request) {
  JobQuery query = {.limit = request.page_size() == 0 ? kDefaultPageSize : request.page_size(),
                    .page_token = request.page_token()};
  if (query.limit < 1 || query.limit > kMaxPageSize) {
    return BadValue("page_size", query.limit, absl::StrCat("1 to ", kMaxPageSize, ", or 0 for ", kDefaultPageSize));
  }
  // A token is the id of the last job of its page.
  if (!query.page_token.empty() && !IsJobId(query.page_token)) {
    return absl::InvalidArgumentError("page_token: must be the next_page_token of a page, or empty");
  }
  for (int state : request.states()) {
    if (!v1::JobState_IsValid(state) || state == v1::JOB_STATE_UNSPECIFIED) {
      return BadValue("states", state, "a state that a job can have");
    }
    // Each once: a request has room for millions, and every job is held against them.
    const auto wanted = static_cast<v1::JobState>(state);
    if (std::find(query.states.begin(), query.states.end(), wanted) == query.states.end()) {
      query.states.push_back(wanted);
    }
  }
  return query;
}

absl::StatusOr<RecordWishes> ToWishes(const v1::StreamMetricsRequest& request) {
  RecordWishes wishes;
  if (request.ranks_size() > kMaxRanksAsked) {
    return absl::InvalidArgumentError(
        absl::StrCat("ranks: ", request.ranks_size(), " of them; must be at most ", kMaxRanksAsked));
  }
  wishes.ranks.insert(request.ranks().begin(), request.ranks().end());
  for (int kind : request.kinds()) {
    if (!v1::RecordKind_IsValid(kind) || kind == v1::RECORD_KIND_UNSPECIFIED) {
      return BadValue("kinds", kind, "a kind that a record can have");
    }
    wishes.kinds.insert(static_cast<v1::RecordKind>(kind));
  }
  if (request.every_n_steps() < 0) return BadValue("every_n_steps", request.every_n_steps(), "at least 0");
  wishes.every_n_steps = std::max(request.every_n_steps(), 1);
  // A NaN is outside, too.
  if (!(request.max_rate() >= 0 && request.max_rate() <= kMaxRate)) {
    return BadValue("max_rate", request.max_rate(), absl::StrCat("0 (no limit) to ", kMaxRate));
  }
  wishes.max_rate = request.max_rate();
  return wishes;
}

std::string ClientOf(absl::string_view peer) {
  if (absl::ConsumePrefix(&peer, "ipv4:") || absl::ConsumePrefix(&peer, "ipv6:")) {
    return std::string(peer.substr(0, peer.rfind(':')));
  }
  return std::string(peer.substr(0, peer.find_first_of(":-")));  // "unix-abstract:", too
}

std::string NetworkOf(absl::string_view client) {
  constexpr size_t kNetworkBytes = 8;
  absl::string_view text = client;
  // In gRPC's words brackets are %5B and %5D.
  if (absl::ConsumePrefix(&text, "[") || absl::ConsumePrefix(&text, "%5B"))
    text = text.substr(0, text.find_first_of("]%"));
  in6_addr ip = {};
  if (::inet_pton(AF_INET6, std::string(text).c_str(), &ip) != 1) return std::string(client);
  char shown[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&ip)) {
    ::inet_ntop(AF_INET, &ip.s6_addr[sizeof(ip) - sizeof(in_addr)], shown, sizeof(shown));
    return shown;
  }
  std::fill(&ip.s6_addr[kNetworkBytes], std::end(ip.s6_addr), uint8_t{0});
  ::inet_ntop(AF_INET6, &ip, shown, sizeof(shown));
  return absl::StrCat(shown, "/", kNetworkBytes * 8);
}

}  // namespace lenet
