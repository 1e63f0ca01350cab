#include "client/ctl/json.h"

#include "google/protobuf/util/json_util.h"

namespace lenet::ctl {

std::string JsonLine(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string line;
  // Fails for a malformed Any or Timestamp alone; such a message must still give a line of JSON.
  if (!google::protobuf::util::MessageToJsonString(message, &line, options).ok()) line = "{}";
  line.push_back('\n');
  return line;
}

}  // namespace lenet::ctl
