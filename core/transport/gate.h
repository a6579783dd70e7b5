// Authenticates new connections, many in parallel: accepted ones, whose peer is unknown, and dialed
// ones. Only authenticated connections are returned. Unauthenticated connections are limited in
// number and time, and receive no information; the first that is refused is logged. When all places
// are taken, idle ones are dropped early, so that they cannot keep ranks out.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/transport/epoll_waiter.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/handshake.h"

namespace hvd {

/// An authenticated connection, or a dialed one that failed.
struct Arrival {
  FileDescriptor socket;  ///< empty if the dialed connection failed
  Hello hello;            ///< the authenticated peer; empty after a failure
  int dialed_rank = -1;   ///< as passed to dial(); -1: accepted
  std::string failure;
  std::optional<SessionKeys> keys{};  ///< of an encrypted connection
};

/// Owned and used by one thread; never blocks. Returned sockets are non-blocking.
class Gate {
 public:
  /// Maximum number of accepted connections in authentication; more wait in the backlog.
  /// max_strangers() is lower if the descriptor limit is low: at most a quarter of it, since the
  /// program needs the rest.
  static constexpr size_t kMaxStrangers = 1024;
  static size_t max_strangers();
  /// Time limit for authentication while places are free.
  static constexpr std::chrono::seconds kMaxSilence{5};
  /// Time limits while other connections wait for a place: for the challenge, and for the complete
  /// proof. A rank sends its challenge at once; its proof may take longer on a machine that starts
  /// hundreds of ranks.
  static constexpr std::chrono::milliseconds kMaxSilenceWhenFull{200};
  static constexpr std::chrono::seconds kMaxProofWhenFull{2};
  /// Maximum number of accepts per step(), so that the calling thread can continue with other work.
  static constexpr int kAcceptsPerStep = 64;

  /// All connections have the purpose, the generation and the encryption of `mine`.
  Gate(const JobKey& key, Hello mine);
  Gate(const JobKey& key, Hello mine, const Clock& clock);

  /// On an abstract unix socket, connections of other users are closed at once.
  void listen_on(FileDescriptor listener);
  /// Authenticates a socket that was connected to the address of `rank`. Arrival::hello gives the
  /// peer that actually answered.
  void dial(FileDescriptor socket, int rank);

  /// Readable when step() has work.
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
  /// Returns false if no connection can be accepted now.
  bool accept_next();
  void pause_listening(bool paused);
  void enter(FileDescriptor socket, Handshake::Role role, int dialed_rank);
  void drop_the_late(std::vector<Arrival>& arrivals);
  bool is_late(const Candidate& candidate) const;
  /// Returns false if the candidate leaves, by advance() or because it was dropped.
  bool still_in_time(Candidate& late, std::vector<Arrival>& arrivals);
  void set_alarm();
  /// Returns true if the candidate leaves: as an Arrival, or dropped without one.
  bool advance(Candidate& candidate, std::vector<Arrival>& arrivals);
  /// Returns false if the peer has closed the connection.
  bool converse(Candidate& candidate);
  void refuse(Candidate& candidate, const Error& why, std::vector<Arrival>& arrivals);

  JobKey key_;
  Hello mine_;
  const Clock& clock_;
  EpollWaiter waiter_;
  FileDescriptor alarm_;  ///< a timer for idle candidates
  FileDescriptor listener_;
  bool is_local_ = false;  ///< the listener is a unix socket
  bool paused_ = false;    ///< full or out of descriptors; new connections stay in the backlog
  bool out_of_descriptors_ = false;
  std::unordered_map<int, Candidate> candidates_;  ///< by descriptor
  size_t strangers_ = 0;
  LimitedLog refusals_{1}, failures_{1};
};

}  // namespace hvd
