#include "trainer/train/watchdog.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/base/seconds.h"

namespace lenet {
namespace {

bool InCollectives(const RankPosition& position) {
  return position.phase == Phase::kBroadcast || position.phase == Phase::kWarmUp || position.phase == Phase::kStep;
}

bool Behind(const RankPosition& a, const RankPosition& b) {
  return std::tie(a.phase, a.queued) < std::tie(b.phase, b.queued);
}

}  // namespace

absl::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kInit:
      return "init";
    case Phase::kBroadcast:
      return "broadcast";
    case Phase::kWarmUp:
      return "warm-up";
    case Phase::kStep:
      return "step";
    case Phase::kEvaluation:
      return "evaluation";
    case Phase::kCheckpoint:
      return "checkpoint";
    case Phase::kEnded:
      return "ended";
  }
  return "";
}

Watchdog::Watchdog(std::chrono::milliseconds timeout) : timeout_(timeout) {}

std::optional<RankFailure> Watchdog::Look(const std::vector<RankPosition>& ranks, Clock::time_point now) {
  const bool elsewhere = std::any_of(ranks.begin(), ranks.end(), [](const RankPosition& position) {
    return !InCollectives(position) && position.phase != Phase::kEnded;
  });
  if (elsewhere || ranks != last_) {
    last_ = ranks;
    moved_ = now;
    return std::nullopt;
  }
  if (timeout_.count() == 0 || now - moved_ < timeout_ || std::none_of(ranks.begin(), ranks.end(), InCollectives)) {
    return std::nullopt;
  }

  const auto last = std::min_element(ranks.begin(), ranks.end(), Behind);
  std::vector<int> waiting;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (Behind(*last, ranks[r])) waiting.push_back(static_cast<int>(r));
  }
  const int rank = static_cast<int>(last - ranks.begin());
  const bool stepping = last->phase == Phase::kStep;
  const std::string within = absl::StrCat(" within ", Seconds(timeout_), " s");
  std::string message;
  if (waiting.empty()) {
    const std::string what = stepping ? absl::StrCat("step ", last->finished + 1)
                                      : absl::StrCat("the ", std::string(PhaseName(last->phase)));
    message = absl::StrCat("no rank finished ", what, within);
  } else {
    const std::string what = stepping ? absl::StrCat("entered step ", last->queued + 1, "'s all-reduce")
                                      : absl::StrCat("finished the ", std::string(PhaseName(last->phase)));
    message = absl::StrCat("rank ", rank, " has not ", what, within, "; ", waiting.size() == 1 ? "rank " : "ranks ",
                           absl::StrJoin(waiting, ", "), waiting.size() == 1 ? " waits for it" : " wait for it");
  }
  return RankFailure{.rank = rank,
                     .step = last->finished,
                     .phase = std::string(PhaseName(last->phase)),
                     .status = absl::DeadlineExceededError(message)};
}

}  // namespace lenet
