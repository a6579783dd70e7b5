#include "core/engine/names_in_flight.h"

namespace hvd {
namespace {

/// Joins and requests to end the job are not matched by name. Messages of one name are matched in
/// the order of submission.
bool has_name(const Request& request) {
  return !request.joins() && !request.ends_job && !is_message(request.signature);
}

}  // namespace

const Request* NamesInFlight::add(std::span<const Request> requests) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!has_name(requests[i]) || keys_.insert(key_of(requests[i])).second) continue;
    remove_locked(requests.first(i));
    return &requests[i];
  }
  return nullptr;
}

void NamesInFlight::remove(std::span<const Request> requests) {
  const std::lock_guard lock(mutex_);
  remove_locked(requests);
}

void NamesInFlight::remove_locked(std::span<const Request> requests) {
  for (const Request& request : requests) {
    if (has_name(request)) keys_.erase(key_of(request));
  }
}

}  // namespace hvd
