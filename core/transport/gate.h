// Where new connections prove that they belong to the job, many at a time: accepted ones, whose
// other end may be any stranger, and dialed ones. What comes out has been authenticated. Strangers
// are limited in number and in time, learn nothing and are not reported.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/clock.h"
#include "core/transport/epoll_waiter.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/handshake.h"

namespace hvd {

/// A connection that has come through, or a dialed one that failed.
struct Arrival {
  FileDescriptor socket;  ///< empty: the dialed connection failed
  Hello hello;            ///< who is at the other end; of a failed one, nothing
  int dialed_rank = -1;   ///< as given to dial(); -1: accepted
  std::string failure;
};

/// Owned and driven by one thread; never blocks. Sockets come out non-blocking.
class Gate {
 public:
  static constexpr size_t kMaxStrangers =
      256;  ///< accepted and not yet proved; more wait in the backlog
  static constexpr std::chrono::seconds kMaxSilence{5};

  /// Every connection is for `mine.purpose`, in `mine.generation`.
  Gate(const JobKey& key, Hello mine);
  Gate(const JobKey& key, Hello mine, const Clock& clock);

  void listen_on(FileDescriptor listener);
  /// `socket` is connected to where `rank` is said to be; who is really there stands in
  /// Arrival::hello.
  void dial(FileDescriptor socket, int rank);

  /// Readable when step() has something to do.
  int fd() const { return waiter_.fd(); }
  std::vector<Arrival> step();

 private:
  struct Candidate {
    FileDescriptor socket;
    Handshake handshake;
    int dialed_rank = -1;
    TimePoint deadline;
  };
  void accept_waiting();
  void pause_listening(bool paused);
  void enter(FileDescriptor socket, Handshake::Role role, int dialed_rank);
  void drop_the_silent();
  void set_alarm();
  /// True when it leaves: as an Arrival, or as a stranger without one.
  bool advance(Candidate& candidate, std::vector<Arrival>& arrivals);
  void converse(Candidate& candidate);

  JobKey key_;
  Hello mine_;
  const Clock& clock_;
  EpollWaiter waiter_;
  FileDescriptor alarm_;  ///< a timer, since silence is no event
  FileDescriptor listener_;
  bool paused_ = false;
  std::unordered_map<int, Candidate> candidates_;  ///< by descriptor
  size_t strangers_ = 0;
};

}  // namespace hvd
