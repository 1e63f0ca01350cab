// A file descriptor with an owner.
#ifndef LENET_TRAINER_BASE_DESCRIPTOR_H_
#define LENET_TRAINER_BASE_DESCRIPTOR_H_

#include "trainer/base/unique_handle.h"

namespace lenet {

// Of a file; its owner closes it.
struct Descriptor {
  int number = -1;
  bool operator==(const Descriptor&) const = default;
};
struct CloseDescriptor {
  void operator()(Descriptor descriptor) const;  // logs what fails
};
using UniqueDescriptor = UniqueHandle<Descriptor, CloseDescriptor>;

}  // namespace lenet

#endif  // LENET_TRAINER_BASE_DESCRIPTOR_H_
