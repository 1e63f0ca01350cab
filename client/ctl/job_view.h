// What submit and watch show of a job while they follow it.
#ifndef LENET_CLIENT_CTL_JOB_VIEW_H_
#define LENET_CLIENT_CTL_JOB_VIEW_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/ctl/output.h"
#include "lenet/v1/training_service.pb.h"

namespace lenet::ctl {

class JobView {
 public:
  virtual ~JobView() = default;

  // Whether the view still needs to be told what the job's spec came to.
  virtual bool wants_job() const = 0;
  virtual void SetJob(const v1::Job& job) = 0;
  virtual void Record(const v1::MetricRecord& record) = 0;
  // At least every tenth of a second. `outage`: why there is no stream at the moment, or OK.
  virtual void Tick(absl::Time now, const absl::Status& outage) = 0;
  // Before anything else is written.
  virtual void Close() = 0;
};

// One line of JSON a record.
std::unique_ptr<JobView> NewJsonView(Output* output);

// Lines of text, and on a terminal a progress display below them. With `every_step`, a line for each step loss that
// comes; else a terminal shows none, and other outputs those of about 50 steps of the job.
std::unique_ptr<JobView> NewTextView(const std::string& job_id, bool every_step, Output* output);

// Steps from one printed step to the next for about 50 in all: 1, 2, 5, 10, 20, 50, ...
int64_t StepInterval(int64_t total_steps);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_JOB_VIEW_H_
