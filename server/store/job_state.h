// The states of a job and the changes between them that are legal.
#ifndef LENET_SERVER_STORE_JOB_STATE_H_
#define LENET_SERVER_STORE_JOB_STATE_H_

#include "absl/strings/string_view.h"
#include "lenet/v1/job.pb.h"

namespace lenet {

//   QUEUED   -> STARTING | PAUSED | STOPPED
//   STARTING -> RUNNING | QUEUED | PAUSED | STOPPING | FAILED
//   RUNNING  -> QUEUED | PAUSED | STOPPING | SUCCEEDED | FAILED  (QUEUED: given up, to go on later)
//   PAUSED   -> QUEUED | STOPPED
//   STOPPING -> STOPPED | SUCCEEDED | FAILED                     (SUCCEEDED: the last step was done before the stop)
bool IsLegalChange(v1::JobState from, v1::JobState to);

// SUCCEEDED, FAILED, STOPPED: nothing follows.
bool IsTerminal(v1::JobState state);

// A change to it closes the attempt that is open, if one is: the terminal states, QUEUED, PAUSED.
bool EndsAttempt(v1::JobState to);

// As in the protocol: "RUNNING"; "JOB_STATE_UNSPECIFIED" for a value that is none of them.
absl::string_view StateName(v1::JobState state);

}  // namespace lenet

#endif  // LENET_SERVER_STORE_JOB_STATE_H_
