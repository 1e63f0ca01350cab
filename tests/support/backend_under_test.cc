#include "tests/support/backend_under_test.h"

#include <map>
#include <memory>

#include "trainer/backend/plugin.h"

namespace lenet {

absl::StatusOr<Backend*> BackendUnderTest(const std::string& name) {
  static auto* const loaded = new std::map<std::string, absl::StatusOr<std::unique_ptr<Backend>>>();
  auto found = loaded->find(name);
  if (found == loaded->end()) found = loaded->emplace(name, LoadBackend(PluginFolder(""), name)).first;
  if (!found->second.ok()) return found->second.status();
  return found->second->get();
}

}  // namespace lenet
