// Gives free memory back to the system.
#ifndef LENET_SERVER_MEMORY_RETURN_H_
#define LENET_SERVER_MEMORY_RETURN_H_

#include <cstdint>

namespace lenet {

// The allocator keeps what a burst of calls took and freed, in an arena for each thread: hundreds of MB that nothing
// else gets. Not safe from several threads.
class MemoryReturn {
 public:
  // To be called every few seconds. Costs next to nothing unless tens of MiB have become free since it last gave memory
  // back.
  void Tick();

 private:
  int64_t unused_bytes_ = 0;  // the least since then
};

}  // namespace lenet

#endif  // LENET_SERVER_MEMORY_RETURN_H_
