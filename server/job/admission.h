// Whether a spec can run on this server.
#ifndef LENET_SERVER_JOB_ADMISSION_H_
#define LENET_SERVER_JOB_ADMISSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lenet/v1/job.pb.h"
#include "lenet/v1/training_spec.pb.h"
#include "server/job/device_pool.h"
#include "trainer/backend/backend.h"
#include "trainer/data/catalog.h"
#include "trainer/train/train_spec.h"

namespace lenet {

// A tensor of the net's weights. Without a shape, if that depends on the number of classes, which only the labels tell.
struct WeightForm {
  std::string name;
  std::optional<std::vector<int64_t>> shape;
};

struct Admitted {
  TrainSpec spec;
  DeviceRequest devices;
  v1::ResolvedSpec resolved;  // without what depends on the devices got or on the labels
  int priority = 0;
  bool preemptible = false;
  int64_t checkpoint_bytes = 0;  // about
  std::vector<WeightForm> weights;
  // Why a job of an earlier server cannot run on this one.
  absl::Status error;
};

inline constexpr int kMaxPriority = 1000;
inline constexpr int kMaxKeepLast = 1000;

// Checks every field against the backend's devices and the headers of the data set's files. INVALID_ARGUMENT names the
// field, the value and the bound; NOT_FOUND: no such data set; FAILED_PRECONDITION: the data set's files are damaged.
// Reads files.
absl::StatusOr<Admitted> Admit(const v1::TrainingSpec& spec, const Backend& backend, const DatasetCatalog& catalog);

// A job that was accepted by an earlier server; it keeps the ranks and the rate that its spec came to then. What is no
// longer right with it is in Admitted::error.
Admitted Readmit(const v1::Job& job, const Backend& backend, const DatasetCatalog& catalog);

}  // namespace lenet

#endif  // LENET_SERVER_JOB_ADMISSION_H_
