// Tells a rank that connects to others when the launcher has abandoned the job, because it lost one
// of them. Only horovodrun does so.
#pragma once

#include <cstdint>
#include <string>

#include "core/transport/epoll_waiter.h"
#include "core/transport/job_number.h"
#include "core/transport/store.h"

namespace hvd {

/// Owned and used by one thread.
class Abandonment {
 public:
  /// `store`, which the launcher serves, is borrowed. `number`: of the job (job_number.h). `group`:
  /// the name of a group in keys, if its ranks connect.
  Abandonment(Store& store, uint32_t number, const std::string& group = "")
      : store_(store), key_(store_key(number, group + "abandoned")) {}

  /// Wakes `waiter` when check() has something to do.
  void watch(EpollWaiter& waiter, uint64_t tag) {
    if (store_.fd() >= 0) waiter.watch(store_.fd(), tag);
  }
  /// Throws Error{peer_lost} with the launcher's reason. Never blocks. The key is never set: the
  /// launcher refuses requests to wait for it.
  void check() { store_.poll(key_); }
  /// Returns after `timeout` if the job is not abandoned until then; otherwise throws like check().
  void await(Duration timeout) { store_.wait(key_, timeout); }
  /// The rank has connected: the launcher sees that it waits for none any more.
  void end() { store_.stop_polling(); }

 private:
  Store& store_;
  const std::string key_;
};

}  // namespace hvd
