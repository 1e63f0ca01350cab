// Messages as lines of JSON.
#ifndef LENET_CLIENT_CTL_JSON_H_
#define LENET_CLIENT_CTL_JSON_H_

#include <string>

#include "google/protobuf/message.h"

namespace lenet::ctl {

// Protobuf's JSON form on one line, with its line end: names as in the .proto files, fields without presence always
// there, 64-bit integers and NaN, Infinity, -Infinity as strings.
std::string JsonLine(const google::protobuf::Message& message);

}  // namespace lenet::ctl

#endif  // LENET_CLIENT_CTL_JSON_H_
