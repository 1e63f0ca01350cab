// Where lenetd's log goes.
#ifndef LENET_SERVER_LOGGING_H_
#define LENET_SERVER_LOGGING_H_

#include "trainer/base/log.h"

namespace lenet {

// From now on Log() writes lines of at least `level` to standard error, with time, level and thread.
void SetUpLogging(LogLevel level);

}  // namespace lenet

#endif  // LENET_SERVER_LOGGING_H_
