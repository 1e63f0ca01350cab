#include "trainer/base/cores.h"

#include <sched.h>

#include <algorithm>

namespace lenet {

int UsableCores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace lenet
