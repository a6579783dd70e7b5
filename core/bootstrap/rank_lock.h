// A lock per rank: on a host, only one process of a user can be a certain rank of a job at a time,
// from init until shutdown or exit. A child of a rank (a data loader's worker, a process that
// imports the script again) therefore gets an error from init, with any launcher. A program started
// by a wrapper can be the rank if the wrapper is not.
//
// The lock is a listening abstract unix socket that never accepts. Its name is derived from the
// launcher's variables, which children inherit. The kernel tells which process listens, and frees
// the name when that process ends.
#pragma once

#include <string>

#include "core/bootstrap/identity.h"
#include "core/transport/file_descriptor.h"

namespace hvd {

/// A resource. A forked child inherits the name but not the lock.
class RankLock {
 public:
  /// Locks nothing for a job without a name (started without a launcher). Throws
  /// Error{invalid_argument} naming the process that holds the lock.
  explicit RankLock(const Identity& identity);
  RankLock(RankLock&&) = default;
  RankLock& operator=(RankLock&&) = default;

  void release() { listener_.reset(); }
  /// In a forked child of the process that holds the lock: throws Error{invalid_argument} while it
  /// does.
  void require_free() const;

 private:
  int rank_ = 0;
  std::string name_;
  FileDescriptor listener_;
};

/// Throws Error{invalid_argument} if another process is this rank now.
void require_free(const Identity& identity);

}  // namespace hvd
