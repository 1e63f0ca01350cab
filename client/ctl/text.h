// How lenetctl writes text, numbers and times.
#ifndef LENET_CLIENT_CTL_TEXT_H_
#define LENET_CLIENT_CTL_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lenet/v1/training_service.pb.h"

namespace lenet::ctl {

// Whether every byte belongs to a well-formed UTF-8 sequence.
bool IsUtf8(absl::string_view text);

// `text` with each control character and each malformed byte replaced by '?', so that no text from elsewhere can move
// the cursor or break a line.
std::string Printable(absl::string_view text);

// Columns that printable text takes on a terminal, as the locale's LC_CTYPE knows them.
int DisplayWidth(absl::string_view text);

// The longest start of printable text that fits `width` columns; cut text ends in "..." where that fits.
std::string Fit(absl::string_view text, int width);

// "1,234,567".
std::string FormatCount(int64_t value);

// "2.3026"; small and large values keep four digits: "1.234e-05"; "nan", "inf".
std::string FormatLoss(double value);

// "0.0125": the shortest form with at most 4 digits.
std::string FormatShort(double value);

// "0.9", "1e-08": the shortest form that reads back as the same value.
std::string FormatExact(double value);
std::string FormatExact(float value);

// A share from 0 to 1 as "98.92 %".
std::string FormatPercent(double share);

// "0.42 s", "12.3 s", "3:05", "1:02:03".
std::string FormatSeconds(double seconds);

// "0:12", "3:05", "1:02:03".
std::string FormatClock(double seconds);

// "42 s", "5 min", "3 h", "12 d": in whole units, cut off.
std::string FormatAge(absl::Duration age);

// "178 kB", "140 GB".
std::string FormatBytes(int64_t bytes);

// Local time, "2024-05-01 12:34:56"; "-" if unset.
std::string FormatTime(const google::protobuf::Timestamp& time);

absl::Time ToTime(const google::protobuf::Timestamp& time);

// "running".
std::string StateName(v1::JobState state);

// "rank 1 after step 17, in step: INTERNAL: ..."; without the rank if it is none in particular, without the step if
// none was done.
std::string FormatFailure(const v1::Failure& failure);

// Whether the state is the job's last.
bool IsTerminal(v1::JobState state);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_TEXT_H_
