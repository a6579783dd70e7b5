// The state of the C interface in this process: the only mutable global of the runtime. capi.cc and
// elastic.cc implement the interface on it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/error.h"
#include "core/bootstrap/membership.h"
#include "core/capi/context.h"
#include "core/capi/handle_table.h"
#include "horovod/horovod.h"

namespace hvd {

struct Process {
  /// The change to the Context in progress; one at a time.
  enum class Change : uint8_t { none, starting, ending };

  std::mutex mutex;  ///< guards `context`, `change` and `membership`; held only briefly
  std::condition_variable changed;  ///< `change` has become none
  Change change = Change::none;
  std::shared_ptr<Context> context;
  /// In an elastic job: made at its first use, and kept from one Context to the next.
  std::shared_ptr<Membership> membership;
  HandleTable handles;
  uint32_t inits = 0;  ///< calls of init so far; written by the thread that starts a Context
  uint32_t forks = 0;  ///< forks since the first process; cheaper than getpid()
};

/// Never destroyed: threads of the framework may still run at exit, and a forked child must not
/// join threads that it does not have.
Process& process();

/// The exclusive right to start or end a Context.
class Changing {
 public:
  using Change = Process::Change;

  /// Waits until no other thread has the right.
  explicit Changing(Change change);
  /// Gets the right to end the Context. Returns nullptr while another thread starts one, which may
  /// take long.
  static std::unique_ptr<Changing> unless_starting();
  ~Changing();
  Changing(const Changing&) = delete;
  Changing& operator=(const Changing&) = delete;

 private:
  Changing() = default;
};

/// The Context of this process; nullptr in a forked child, and if there is none.
std::shared_ptr<Context> current();
/// Throws Error{not_initialized} if there is none.
std::shared_ptr<Context> running();
void replace(std::shared_ptr<Context> next);
/// Of the elastic job that this process belongs to; nullptr if it belongs to none. Throws
/// Error{invalid_argument} if its variables are malformed.
std::shared_ptr<Membership> membership();

/// The text of the last error on this thread.
std::string& last_error();

/// Converts exceptions into status codes.
template <class Body>
hvd_status guarded(Body body) noexcept {
  try {
    body();
    return HVD_OK;
  } catch (const Error& error) {
    last_error() = error.what();
    return static_cast<hvd_status>(error.code());
  } catch (const std::exception& error) {
    last_error() = error.what();
    return HVD_INTERNAL;
  }
}

}  // namespace hvd
