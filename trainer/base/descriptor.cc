#include "trainer/base/descriptor.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "trainer/base/log.h"

namespace lenet {

void CloseDescriptor::operator()(Descriptor descriptor) const {
  if (::close(descriptor.number) != 0) {
    Log(LogLevel::kWarning,
        absl::StrCat("cannot close descriptor ", descriptor.number, ": ", std::generic_category().message(errno)));
  }
}

}  // namespace lenet
