// Interface to one host of a job, or to several hosts behind one connection. Workers run on this
// machine or at the remote end of an ssh. The launcher gives orders and takes events in order.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/transport/socket.h"
#include "launcher/driver/driver.h"
#include "launcher/driver/start_table.h"
#include "launcher/stream/lines.h"
#include "launcher/worker/assignment.h"
#include "launcher/worker/question.h"

namespace hvd::launcher {

/// A piece of a worker's output. No bytes: the stream has ended.
struct Chunk {
  WorkerId worker;
  Stream stream{};
  std::string bytes;
};

/// The worker could not be started, with the errno.
struct WorkerNotStarted {
  WorkerId worker;
  int error = 0;
};
/// No process of the job is left on this host.
struct HostEmpty {
  int host = 0;  ///< in the order of the job's hosts
};
/// The connection to this host is lost, and its workers end.
struct HostGone {
  int host = 0;
  std::string why;
  int exit_code = 1;
};
using HostEvent = std::variant<WorkerExited, WorkerNotStarted, HostEmpty, HostGone>;

/// What the ranks of a host have told (launcher/dump/gathered.h); malformed if they could not be
/// asked.
struct HostDump {
  int host = 0;
  std::string text{};
};

/// A worker's output from before its end is returned before its exit, or together with it.
struct HostNews {
  std::vector<Chunk> output;
  std::vector<HostEvent> events;
  std::vector<HostDump> dumps{};
};

class HostLink {
 public:
  virtual ~HostLink() = default;
  /// Readable when take() has something to do.
  virtual int fd() const = 0;
  /// Appends the events since the last call. Never blocks.
  virtual void take(HostNews& news) = 0;
  /// Fills in the start-up state of its hosts, each at its index. It stays as it was when a host is
  /// lost later.
  virtual void tell_rows(std::vector<StartRow>& rows) const = 0;
  /// True once each of its hosts is ready or has failed.
  virtual bool settled() const = 0;
  /// Starts the workers of `workers` that are on its hosts, which are ready. Call it for all
  /// workers at once, or later for one worker in a slot whose worker has ended. `store`: the
  /// Store's address on this machine; remote hosts have found an address of their own.
  virtual void start_workers(std::span<const AssignedWorker> workers, const Address& store) = 0;
  /// No further worker will be started: supervisors and agents end when no process is left on their
  /// hosts.
  virtual void no_more_workers() = 0;
  /// Sends a signal to a worker's processes (see supervisor.h); after its end, to its process
  /// group.
  virtual void signal(const WorkerId& worker, int signal) = 0;
  virtual void signal_all(int signal) = 0;
  /// Asks its hosts what their ranks wait for. Adds the hosts of which a HostDump will follow,
  /// unless they are lost. A host that has not answered an earlier question answers the one that
  /// asks for more.
  virtual void ask_for_dumps(Question question, std::set<int>& hosts) = 0;
  /// While paused, output stays in the pipes of the workers.
  virtual void pause_output(bool paused) = 0;
  /// Returns how many bytes of standard input rank 0 can take. None if no worker takes it from
  /// here: rank 0 reads it directly, or no longer reads.
  virtual std::optional<size_t> input_room() const = 0;
  /// At most input_room() bytes. No bytes: the end of the input.
  virtual void give_input(std::string_view bytes) = 0;
};

}  // namespace hvd::launcher
