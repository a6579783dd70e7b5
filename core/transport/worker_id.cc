#include "core/transport/worker_id.h"

#include <fmt/core.h>

#include <charconv>

namespace hvd {

std::string to_text(const WorkerId& worker) {
  return fmt::format("{}/{}/{}", worker.host, worker.slot, worker.incarnation);
}

std::optional<WorkerId> worker_from(std::string_view text) {
  WorkerId worker;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int* field : {&worker.host, &worker.slot, &worker.incarnation}) {
    if (field != &worker.host && (at == end || *at++ != '/')) return std::nullopt;
    const auto [stop, error] = std::from_chars(at, end, *field);
    if (error != std::errc() || *field < 0) return std::nullopt;
    at = stop;
  }
  if (at != end) return std::nullopt;
  return worker;
}

}  // namespace hvd
