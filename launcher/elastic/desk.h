// The launcher's side of an elastic job's messages: reads the requests of workers from the Store,
// and writes their places and announcements (core/transport/elastic_messages.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/transport/elastic_messages.h"
#include "core/transport/store_server.h"
#include "core/transport/worker_id.h"

namespace hvd::launcher::elastic {

/// Owned and used by the launcher's only thread.
class Desk {
 public:
  /// `store` outlives this.
  explicit Desk(StoreServer& store) : store_(store) {}

  struct Request {
    WorkerId worker;
    std::string version;  ///< of Horovod in its process
    bool operator==(const Request&) const = default;
  };
  /// Returns the workers that have asked since the last call. Those that were refused are answered.
  std::vector<Request> take_requests();
  /// Returns the workers that have said since the last call that they leave.
  std::vector<WorkerId> take_departures();
  /// Answers the worker, which has asked: `variables` describe its place.
  void give_place(const WorkerId& worker, const Environment& variables);
  /// Answers the worker now, if it has asked, and whenever it asks again.
  void refuse(const WorkerId& worker, const std::string& why);
  /// Does not answer the worker, which is ended.
  void ignore(const WorkerId& worker) { ignored_.insert(worker); }
  /// Refuses all workers from now on: the job ends.
  void close(const std::string& why);
  void announce(const ElasticUpdate& update);
  /// Removes what only workers of earlier generations would read.
  void forget_before(uint32_t generation);

 private:
  struct Client {
    std::string request{};  ///< id of the last one
    bool is_open = false;   ///< it was not answered
    std::optional<std::string> refusal{};
    std::string answer_key{};  ///< of the last answer
  };
  void answer(const WorkerId& worker, Client& client, const Place& place);

  StoreServer& store_;
  std::map<WorkerId, Client> clients_;
  std::set<WorkerId> ignored_;
  std::optional<std::string> closed_;
  uint64_t next_news_ = 1;
  uint64_t oldest_news_ = 1;
};

}  // namespace hvd::launcher::elastic
