#include "core/bootstrap/generation.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/transport/store_messages.h"

namespace hvd {

uint32_t generation_of(std::optional<uint32_t> assigned, uint32_t inits) {
  if (assigned == kStoreGeneration) {
    fail(Code::internal,
         fmt::format("the launcher has assigned generation {} to this job; generations begin at {}",
                     kStoreGeneration, kStoreGeneration + 1));
  }
  return assigned.value_or(inits);
}

std::string rendezvous_name(uint32_t generation, const std::vector<int>& members) {
  if (members.empty()) return fmt::format("horovod-{}-all", generation);
  const NameHash hash = hash_name(fmt::format("{}", fmt::join(members, ",")));
  return fmt::format("horovod-{}-{:016x}", generation, hash.high);
}

}  // namespace hvd
