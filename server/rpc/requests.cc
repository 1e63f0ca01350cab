#include "server/rpc/requests.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/job/job_id.h"
#include "trainer/base/status.h"

namespace lenet {
namespace {

constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;

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
    query.states.push_back(static_cast<v1::JobState>(state));
  }
  return query;
}

absl::StatusOr<RecordWishes> ToWishes(const v1::StreamMetricsRequest& request) {
  RecordWishes wishes;
  wishes.ranks.insert(request.ranks().begin(), request.ranks().end());
  for (int kind : request.kinds()) {
    if (!v1::RecordKind_IsValid(kind) || kind == v1::RECORD_KIND_UNSPECIFIED) {
      return BadValue("kinds", kind, "a kind that a record can have");
    }
    wishes.kinds.insert(static_cast<v1::RecordKind>(kind));
  }
  if (request.every_n_steps() < 0) return BadValue("every_n_steps", request.every_n_steps(), "at least 0");
  wishes.every_n_steps = std::max(request.every_n_steps(), 1);
  if (!(request.max_rate() >= 0 && std::isfinite(request.max_rate()))) {
    return BadValue("max_rate", request.max_rate(), "finite and at least 0 (0: no limit)");
  }
  wishes.max_rate = request.max_rate();
  return wishes;
}

std::string ClientOf(absl::string_view peer) {
  if (absl::ConsumePrefix(&peer, "ipv4:") || absl::ConsumePrefix(&peer, "ipv6:")) {
    return std::string(peer.substr(0, peer.rfind(':')));
  }
  return std::string(peer.substr(0, peer.find(':')));
}

}  // namespace lenet
