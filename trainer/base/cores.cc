#include "trainer/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>

namespace lenet {
namespace {

// This process's cpu.max (Linux, Documentation/admin-guide/cgroup-v2.rst); empty where there is none.
std::string CpuMax() {
  std::ifstream groups("/proc/self/cgroup");
  std::string content;
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;
    std::ifstream file("/sys/fs/cgroup" + line.substr(3) + "/cpu.max");
    std::getline(file, content);
  }
  return content;
}

}  // namespace

int UsableCores() {
  cpu_set_t set;
  const int affinity = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  const int quota = QuotaCores(CpuMax());
  return std::max(1, quota > 0 ? std::min(affinity, quota) : affinity);
}

int QuotaCores(const std::string& cpu_max) {
  std::istringstream text(cpu_max);
  int64_t quota = 0;
  int64_t period = 0;
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return 0;  // "max 100000"
  return static_cast<int>(std::min<int64_t>((quota - 1) / period + 1, CPU_SETSIZE));
}

}  // namespace lenet
