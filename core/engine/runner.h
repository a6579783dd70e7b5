// Runs agreed batches in order, each on its Group by the Backend of its device. Starts the next
// batch when the previous one is done or launched on a device. Polls launched batches until they
// are done.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/backend/backends.h"
#include "core/engine/event_source.h"
#include "core/engine/request.h"
#include "core/group/group.h"
#include "core/negotiate/client.h"

namespace hvd {

/// Owned and driven by the holder of the progress token.
class Runner {
 public:
  struct Job {
    GroupNumber group = kWorldGroup;
    std::vector<int> between{};  ///< message: its two ranks, whose group it runs on
    std::vector<Bound> bound{};
    std::vector<Request> requests{};         ///< for the elements of `bound` that are `mine`
    std::optional<Batch> batch{};            ///< nullopt: nothing to move (barrier)
    std::shared_ptr<DeviceResult> result{};  ///< of its operations, if they are completed
    bool closes_group = false;               ///< removes the group; no later job uses it
    bool is_completed = false;               ///< its operations completed when it was launched
    bool is_paced = false;  ///< the Root knows that it has ended, or does not count it
  };

  /// How many launched jobs wait for a device without delaying others: with more, the Root is not
  /// told that a batch has ended, and no message is launched. The device is behind then, so the
  /// next batches may become larger (docs/decisions/0055).
  static constexpr size_t kQueuedJobs = 16;

  /// Both must outlive the Runner.
  Runner(const Backends& backends, EventSource& events) : backends_(backends), events_(events) {}

  void add_group(GroupNumber number, GroupLevels group) { groups_[number] = std::move(group); }
  const Group& group(GroupNumber number) const { return *groups_.at(number).all; }
  /// The groups of two ranks for messages, at most one per other rank.
  bool has_pair(const std::vector<int>& ranks) const { return pairs_.contains(ranks); }
  void add_pair(const std::vector<int>& ranks, GroupLevels group) {
    pairs_[ranks] = std::move(group);
  }

  /// Returns the queued job. The caller may add requests to it.
  Job& enqueue(Job job) { return queue_.emplace_back(std::move(job)); }
  bool idle() const { return queue_.empty() && launched_.empty(); }
  /// How long the caller may sleep: the shortest Backend::poll_interval() of the jobs in progress.
  std::optional<std::chrono::nanoseconds> poll_interval() const;

  /// Polls launched jobs and moves about one segment of the oldest other job. Returns `done` if a
  /// job is done, see take_finished(); `launched` if a job has been launched, see launched();
  /// `waiting` if there is no job or no progress. Throws Error{peer_lost}.
  Progress advance();
  size_t launched_jobs() const { return launched_.size(); }
  /// The job that the last advance() has launched.
  Job& launched() { return launched_.back().job; }
  /// See Run::result().
  std::shared_ptr<const DevicePoint> result_of_launched() const {
    return launched_.back().run->result();
  }
  const Job& finished() const { return ended_ ? launched_[*ended_].job : queue_.front(); }
  Job take_finished();

  /// Stops all runs and does not access memory of tensors again. The caller must complete the
  /// requests of the remaining jobs.
  void stop();
  template <class Visit>
  void for_each_job(Visit visit) {
    for (Launched& one : launched_) visit(one.job);
    for (Job& job : queue_) visit(job);
  }
  void drop_all();

 private:
  struct Launched {
    Job job{};
    std::unique_ptr<Run> run{};  ///< nullptr: it has ended
  };

  GroupLevels& group_of(const Job& job) {
    return job.between.empty() ? groups_.at(job.group) : pairs_.at(job.between);
  }
  bool find_ended();
  bool must_wait(const Job& job) const;
  bool has_launched_on(GroupNumber group) const;
  void keep_as_launched();
  std::optional<std::chrono::nanoseconds> poll_interval_of(const Job& job) const;

  const Backends& backends_;
  EventSource& events_;
  std::map<GroupNumber, GroupLevels> groups_;
  std::map<std::vector<int>, GroupLevels> pairs_;
  std::vector<Launched> launched_;  ///< few: negotiation limits batches, must_wait() messages
  std::optional<size_t> ended_;     ///< index in launched_ of the job for take_finished()
  std::deque<Job> queue_;
  std::unique_ptr<Run> run_;  ///< of queue_.front()
};

}  // namespace hvd
