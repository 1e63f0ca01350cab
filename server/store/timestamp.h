// absl::Time and protobuf's Timestamp.
#ifndef LENET_SERVER_STORE_TIMESTAMP_H_
#define LENET_SERVER_STORE_TIMESTAMP_H_

#include "absl/time/time.h"
#include "google/protobuf/timestamp.pb.h"

namespace lenet {

// Rounds down to microseconds, so that a time survives any store. `time` is finite.
inline google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  const int64_t micros = absl::ToUnixMicros(time);
  const int64_t seconds = micros / 1000000 - (micros % 1000000 < 0 ? 1 : 0);
  google::protobuf::Timestamp timestamp;
  timestamp.set_seconds(seconds);
  timestamp.set_nanos(static_cast<int32_t>((micros - seconds * 1000000) * 1000));
  return timestamp;
}

inline absl::Time FromTimestamp(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixSeconds(timestamp.seconds()) + absl::Nanoseconds(timestamp.nanos());
}

}  // namespace lenet

#endif  // LENET_SERVER_STORE_TIMESTAMP_H_
