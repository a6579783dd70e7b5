// Where new connections prove that they belong to the job, many at a time: accepted ones, whose
// other end may be any stranger, and dialed ones. What comes out has been authenticated. Strangers
// are limited in number and in time, learn nothing and are not reported. Those that only occupy a
// place lose it as soon as others wait for one, so that they cannot keep ranks out.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
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
  /// Accepted and not yet proved; more wait in the backlog. Fewer where the process may have few
  /// descriptors: a quarter of these, since the rest is for the program.
  static constexpr size_t kMaxStrangers = 1024;
  static size_t max_strangers();
  /// How long a stranger may take for its proof while there is room.
  static constexpr std::chrono::seconds kMaxSilence{5};
  /// The same when others wait for a place. A rank sends its challenge at once; its proof may take
  /// it a while on a machine where hundreds of ranks start.
  static constexpr std::chrono::milliseconds kMaxSilenceWhenFull{200};
  static constexpr std::chrono::seconds kMaxProofWhenFull{2};
  /// Connections that one step() accepts, so that the thread that drives the Gate gets on with its
  /// work.
  static constexpr int kAcceptsPerStep = 64;

  /// Every connection is for `mine.purpose`, in `mine.generation`.
  Gate(const JobKey& key, Hello mine);
  Gate(const JobKey& key, Hello mine, const Clock& clock);

  /// At an abstract unix socket, processes of other users are hung up on at once.
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
    TimePoint entered;
  };
  void accept_waiting();
  /// False when there is none to accept now.
  bool accept_next();
  void pause_listening(bool paused);
  void enter(FileDescriptor socket, Handshake::Role role, int dialed_rank);
  void drop_the_late(std::vector<Arrival>& arrivals);
  bool is_late(const Candidate& candidate) const;
  /// False when it leaves, as by advance() or dropped.
  bool still_in_time(Candidate& late, std::vector<Arrival>& arrivals);
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
  bool is_local_ = false;  ///< the listener is a unix socket
  bool paused_ = false;    ///< full, or out of descriptors: others wait
  bool out_of_descriptors_ = false;
  std::unordered_map<int, Candidate> candidates_;  ///< by descriptor
  size_t strangers_ = 0;
  LimitedLog refusals_{16};  ///< at level debug: one stranger can cause any number
  LimitedLog failures_{1};
};

}  // namespace hvd
