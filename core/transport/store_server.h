// The Store that the launcher serves to the ranks over TCP. It has no thread: the launcher adds
// fd() to its event loop and calls step() when it is readable.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/transport/channel.h"
#include "core/transport/epoll_waiter.h"
#include "core/transport/gate.h"
#include "core/transport/store_messages.h"

namespace hvd {

/// Owned and used by one thread; never blocks.
class StoreServer {
 public:
  /// Listens on `host` (empty: all addresses), on a free port if `port` is 0.
  StoreServer(const JobKey& key, const std::string& host, uint16_t port);

  uint16_t port() const { return port_; }
  /// Readable when step() has work.
  int fd() const { return waiter_.fd(); }
  void step();

  bool has_clients() const { return !clients_.empty(); }

  /// Local access for the launcher.
  std::optional<ByteVector> peek(const std::string& key) const;
  void set(const std::string& key, ConstBytes value);
  /// Refuses requests to wait for keys of jobs with a number below `number` (job_number.h), open
  /// ones too, for the reason `why`.
  void abandon_jobs_before(uint32_t number, const std::string& why);
  /// Refuses them for the keys of all jobs.
  void abandon_all_jobs(const std::string& why);
  /// Refuses requests for what all ranks of a job need, of any job: one of them is missing. Groups
  /// of others are still made. The first reason is given, also after a job is abandoned.
  void refuse_starts(const std::string& why);
  /// The ranks that wait for what all ranks of a job of this generation need.
  std::set<int> waiting_to_start(uint32_t generation) const;
  /// Removes the keys of jobs with a number below `number`.
  void forget_jobs_before(uint32_t number);
  void forget(const std::string& key);
  /// Returns all entries whose keys begin with `prefix`.
  std::map<std::string, ByteVector> matching(std::string_view prefix) const;

 private:
  /// At most one wait per client, so that memory does not grow with the number of requests.
  struct Wait {
    uint32_t request = 0;
    std::string key;
  };
  struct Client {
    Channel channel;
    std::optional<Wait> wait{};
  };
  void admit();
  /// Returns false if the client must be dropped.
  bool serve(uint64_t tag, Client& client);
  void watch_unsent(uint64_t tag, Client& client);
  void answer(Client& client, const StoreRequest& request);
  static void reply(Client& client, const StoreReply& reply);
  /// nullptr: it may be waited for.
  const std::string* why_refused(const std::string& key) const;
  void refuse_waiting();
  bool has_room_for(const StoreRequest& request) const;
  /// Iterates over all clients: there are few ranks, and each sets only a few keys.
  void answer_waiting(const std::string& key, const ByteVector& value);
  void drop(uint64_t tag);

  EpollWaiter waiter_;
  Gate gate_;
  uint16_t port_ = 0;
  std::unordered_map<uint64_t, Client> clients_;  ///< by tag
  uint64_t last_tag_ = 0;                         ///< 0 is the tag of the gate
  std::unordered_map<std::string, ByteVector> values_;
  size_t stored_bytes_ = 0;
  uint32_t abandoned_before_ = 0;
  std::string why_abandoned_;
  std::optional<std::string> why_no_start_;
};

}  // namespace hvd
