// The membership of this process in an elastic job: it asks the launcher for its place in the next
// generation, reads what the launcher announces, and says that it leaves. It has a connection of
// its own to the launcher's Store, which outlives the generations
// (core/transport/elastic_messages.h).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/base/knobs.h"
#include "core/transport/elastic_messages.h"
#include "core/transport/store_client.h"

namespace hvd {

/// The worker that this process is; none outside of elastic jobs. Throws Error{invalid_argument} if
/// the variable is malformed.
std::optional<WorkerId> worker_of(const Environment& environment);
/// The launcher's generation in which a worker with these variables has a place; none: it has none
/// yet, or the job is not elastic.
std::optional<uint32_t> place_generation(const Environment& environment);

/// Any thread may call any function. One thread at a time asks and waits.
class Membership {
 public:
  /// `environment`: of the process, with the place that the launcher gave it at its start, if any.
  explicit Membership(const Environment& environment);

  /// None: no place yet.
  std::optional<uint32_t> generation() const;
  /// The variables of the last place that the launcher has assigned since the start. They replace
  /// those of the process.
  Environment variables() const;

  /// Asks for a place in the next generation. Throws Error{peer_lost} if the launcher is lost.
  void ask();
  /// Waits for the place; asks first if this process has none. Returns false after `timeout`.
  /// Throws Error{shut_down} with the reason if the launcher does not want this worker any more,
  /// Error{peer_lost} if the job ends or the launcher is lost.
  bool await_place(Duration timeout);

  /// Says that this process leaves the job for good. Returns when the launcher knows it. Throws
  /// Error{peer_lost} if the launcher is lost, Error{timed_out}.
  void leave();

  /// Takes all announcements so far and returns their union; none: nothing new. Blocks only for the
  /// first connection to the launcher. Throws Error{peer_lost}.
  std::optional<ElasticUpdate> pending_update();

 private:
  StoreClient& store();
  std::optional<ElasticUpdate> next_update();

  const Environment environment_;
  const WorkerId worker_;
  mutable std::mutex mutex_;  ///< guards what follows
  std::unique_ptr<StoreClient> store_;
  std::optional<uint32_t> generation_;
  Environment variables_;
  std::string request_;  ///< not answered yet; empty: none
  uint32_t requests_ = 0;
  uint64_t next_news_ = 1;
};

}  // namespace hvd
