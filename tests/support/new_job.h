// A job as a store is given it.
#ifndef LENET_TESTS_SUPPORT_NEW_JOB_H_
#define LENET_TESTS_SUPPORT_NEW_JOB_H_

#include <string>

#include "lenet/v1/job.pb.h"

namespace lenet {

inline v1::Job NewJob(const std::string& id, const std::string& request_id = "") {
  v1::Job job;
  job.set_id(id);
  job.set_request_id(request_id);
  job.set_state(v1::QUEUED);
  job.mutable_resolved()->set_ranks(1);
  return job;
}

}  // namespace lenet

#endif  // LENET_TESTS_SUPPORT_NEW_JOB_H_
