// Non-blocking TCP connects, many in parallel, so that an unreachable address does not delay the
// others. A Gate authenticates the peer afterwards.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/transport/file_descriptor.h"
#include "core/transport/socket.h"

namespace hvd {

/// The result of one attempt.
struct Dialed {
  int id = 0;  ///< as passed to dial()
  Address address;
  FileDescriptor socket;  ///< connected and non-blocking; empty if the attempt failed
  std::string why;
};

/// Owned and used by one thread; never blocks.
class Dialer {
 public:
  Dialer();

  /// Starts an attempt. `address` is numeric. Several attempts may share one id.
  void dial(int id, const Address& address);
  /// Cancels the attempts of this id; step() does not return them.
  void forget(int id);
  bool is_dialing(int id) const;

  /// Readable when step() has work.
  int fd() const { return epoll_.get(); }
  std::vector<Dialed> step();

 private:
  struct Attempt {
    int id = 0;
    Address address;
    FileDescriptor socket;
  };
  void end(Attempt attempt, int error);

  FileDescriptor epoll_;
  FileDescriptor now_;               ///< an eventfd: readable while results are available
  std::map<int, Attempt> attempts_;  ///< by descriptor
  std::vector<Dialed> ended_;
};

}  // namespace hvd
