// A host of a job as the launcher sees it, or several that are reached by one way, whether ranks
// are started here or at the far end of an ssh: what happens there comes out in order, what shall
// happen there goes in.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/transport/socket.h"
#include "job/driver/driver.h"
#include "job/driver/start_table.h"
#include "job/stream/lines.h"

namespace hvd::job {

/// What a rank wrote; no bytes: the stream has ended.
struct Chunk {
  int rank = 0;
  Stream stream{};
  std::string bytes;
};

/// Why a rank never became its program (errno).
struct RankNotStarted {
  int rank = 0;
  int error = 0;
};
/// No process of the job is left on this host.
struct HostEmpty {
  int host = 0;  ///< in the order of the job's hosts
};
/// The way to this host's ranks is gone, and they are ended there.
struct HostGone {
  int host = 0;
  std::string why;
  int exit_code = 1;
};
using HostEvent = std::variant<RankExited, RankNotStarted, HostEmpty, HostGone>;

/// What a rank wrote before it ended is among `output` not later than its end is among `events`.
struct HostNews {
  std::vector<Chunk> output;
  std::vector<HostEvent> events;
};

class HostLink {
 public:
  virtual ~HostLink() = default;
  /// Readable when take() has something to do.
  virtual int fd() const = 0;
  /// Appends what has happened. Never blocks.
  virtual void take(HostNews& news) = 0;
  /// Fills in how far its hosts have come, each at its place; after start() of no meaning.
  virtual void tell_rows(std::vector<StartRow>& rows) const = 0;
  /// All of its hosts are ready, or will not be.
  virtual bool settled() const = 0;
  /// Starts the ranks of hosts that are ready. `store`: how this machine reaches it; another one
  /// has found its own way.
  virtual void start(const Address& store) = 0;
  virtual void signal_all(int signal) = 0;
  /// While paused, what ranks write stays where it is.
  virtual void pause_output(bool paused) = 0;
  /// How much of the standard input rank 0 can be given; nothing: it wants none, since it reads by
  /// itself, or not at all.
  virtual std::optional<size_t> input_room() const = 0;
  /// Not more than there is room for. No bytes: the end.
  virtual void give_input(std::string_view bytes) = 0;
};

}  // namespace hvd::job
