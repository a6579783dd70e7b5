// Runs agreed batches one after the other, in the order of the stream, each on its Group.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/backend/host/host_backend.h"
#include "core/engine/event_source.h"
#include "core/engine/request.h"
#include "core/group/group.h"
#include "core/negotiate/client.h"

namespace hvd {

/// Owned and driven by the holder of the driver token.
class Runner {
 public:
  struct Job {
    GroupNumber group = kWorldGroup;
    std::vector<Bound> bound{};
    std::vector<Request> requests{};  ///< of those bound that are `mine`
    std::optional<Batch> batch{};     ///< none: nothing to move (barrier)
    bool closes_group = false;        ///< the set is removed: nothing behind this runs on it
  };

  /// `carrier`: see HostBackend; none, or it outlives the Runner.
  Runner(const HostRules& rules, Carrier* carrier, EventSource& events)
      : backend_(rules, carrier), events_(events) {}

  void add_group(GroupNumber number, GroupLevels group) { groups_[number] = std::move(group); }
  const Group& group(GroupNumber number) const { return *groups_.at(number).all; }

  /// Returns the job in its place, where the requests may still be put in.
  Job& enqueue(Job job) { return queue_.emplace_back(std::move(job)); }
  bool idle() const { return queue_.empty(); }

  enum class Progress : uint8_t { idle, waiting, moved, finished };
  /// Moves about one segment of the oldest job. `finished`: it is done, see take_finished().
  /// Throws Error{peer_lost}.
  Progress advance();
  const Job& finished() const { return queue_.front(); }
  Job take_finished();

  /// Stops the batch that is running; the memory of tensors is not touched again. The requests of
  /// the jobs that are left, see drop_all(), are to be ended by the caller.
  std::deque<Job>& abandon();
  void drop_all() { queue_.clear(); }

 private:
  HostBackend backend_;
  EventSource& events_;
  std::map<GroupNumber, GroupLevels> groups_;
  std::deque<Job> queue_;
  std::unique_ptr<Run> run_;  ///< of queue_.front()
};

}  // namespace hvd
