#include "server/store/job_state.h"

namespace lenet {
namespace {

struct Change {
  v1::JobState from;
  v1::JobState to;
};

constexpr Change kLegalChanges[] = {
    {v1::QUEUED, v1::STARTING},   {v1::QUEUED, v1::PAUSED},      {v1::QUEUED, v1::STOPPED},
    {v1::STARTING, v1::RUNNING},  {v1::STARTING, v1::QUEUED},    {v1::STARTING, v1::PAUSED},
    {v1::STARTING, v1::STOPPING}, {v1::STARTING, v1::FAILED},    {v1::RUNNING, v1::QUEUED},
    {v1::RUNNING, v1::PAUSED},    {v1::RUNNING, v1::STOPPING},   {v1::RUNNING, v1::SUCCEEDED},
    {v1::RUNNING, v1::FAILED},    {v1::PAUSED, v1::QUEUED},      {v1::PAUSED, v1::STOPPED},
    {v1::STOPPING, v1::STOPPED},  {v1::STOPPING, v1::SUCCEEDED}, {v1::STOPPING, v1::FAILED},
};

}  // namespace

bool IsLegalChange(v1::JobState from, v1::JobState to) {
  for (const Change& change : kLegalChanges) {
    if (change.from == from && change.to == to) return true;
  }
  return false;
}

bool IsTerminal(v1::JobState state) { return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::STOPPED; }

bool EndsAttempt(v1::JobState to) { return IsTerminal(to) || to == v1::QUEUED || to == v1::PAUSED; }

absl::string_view StateName(v1::JobState state) {
  switch (state) {
    case v1::QUEUED:
      return "QUEUED";
    case v1::STARTING:
      return "STARTING";
    case v1::RUNNING:
      return "RUNNING";
    case v1::STOPPING:
      return "STOPPING";
    case v1::SUCCEEDED:
      return "SUCCEEDED";
    case v1::FAILED:
      return "FAILED";
    case v1::STOPPED:
      return "STOPPED";
    case v1::PAUSED:
      return "PAUSED";
    default:
      return "JOB_STATE_UNSPECIFIED";
  }
}

}  // namespace lenet
