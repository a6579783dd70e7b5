// TCP connections that are being opened, many at a time and without blocking, so that an address
// which nobody answers holds up no other one. Who is at the other end is for a Gate to find out.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/transport/file_descriptor.h"
#include "core/transport/socket.h"

namespace hvd {

/// How one attempt ended.
struct Dialed {
  int id = 0;  ///< as given to dial()
  Address address;
  FileDescriptor socket;  ///< connected and non-blocking; empty: it failed
  std::string why;
};

/// Owned and driven by one thread; never blocks.
class Dialer {
 public:
  Dialer();

  /// `address` is numeric. Several attempts may have one id.
  void dial(int id, const Address& address);
  /// Ends the attempts of this id without an outcome.
  void forget(int id);
  bool is_dialing(int id) const;

  /// Readable when step() has something to do.
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
  FileDescriptor now_;               ///< an eventfd: readable while there are outcomes at hand
  std::map<int, Attempt> attempts_;  ///< by descriptor
  std::vector<Dialed> ended_;
};

}  // namespace hvd
