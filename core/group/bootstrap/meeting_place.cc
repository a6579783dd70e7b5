#include "core/group/bootstrap/meeting_place.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <utility>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/group/bootstrap/job_key.h"
#include "core/group/bootstrap/local_introduction.h"
#include "core/group/bootstrap/machine.h"
#include "core/group/bootstrap/secret_file.h"
#include "core/group/bootstrap/word.h"
#include "core/transport/interfaces.h"
#include "core/transport/store_client.h"

namespace hvd {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr uint16_t kAnyPort = 0;

/// Two ranks with the same one reach each other over loopback.
std::string machine_text() {
  const NameHash hash = hash_name(kernel_name() + network_name());
  return fmt::format("{:016x}", hash.high);
}

class CallersIntroduction final : public Introduction {
 public:
  explicit CallersIntroduction(const Spread& spread) : spread_(spread) {}
  std::string spread(const std::string& name, const std::string& mine,
                     const StartDeadline& /*deadline*/) override {
    return spread_(name, mine);
  }

 private:
  const Spread& spread_;
};

class Search {
 public:
  Search(Identity& identity, const Environment& environment, uint32_t generation,
         const Knobs& knobs, const Spread& spread)
      : identity_(identity),
        environment_(environment),
        knobs_(knobs),
        spread_(spread),
        deadline_(knobs.start_timeout),
        name_(fmt::format("horovod-{}-{}", generation, part_text(identity))) {}

  MeetingPlace run() {
    switch (identity_.meeting) {
      case Meeting::launcher:
        return at_launcher();
      case Meeting::local:
        return at_door();
      case Meeting::address:
        return at_address();
      case Meeting::pmi:
        return after(*introduce_by_pmi(identity_));
      case Meeting::pmix:
        return after(*introduce_by_pmix(identity_, environment_));
      case Meeting::caller:
        break;
    }
    return after_caller();
  }

 private:
  static std::string part_text(const Identity& identity) {
    if (identity.members.empty()) return "all";
    const NameHash hash = hash_name(fmt::format("{}", fmt::join(identity.members, ",")));
    return fmt::format("{:016x}", hash.high);
  }

  bool serves() const { return identity_.rank == 0; }
  bool has_secret() const { return !knobs_.secret_file.empty(); }
  JobKey shared() const { return shared_key(knobs_, {identity_.store_host, identity_.store_port}); }

  MeetingPlace at_launcher() {
    MeetingPlace place;
    place.key = read_job_key(environment_);
    place.store = std::make_unique<StoreClient>(Address{identity_.store_host, identity_.store_port},
                                                place.key, identity_.launcher_rank(identity_.rank),
                                                deadline_.left());
    if (!identity_.members.empty())  // jobs of other ranks may meet in the same Store
      place.part = std::make_unique<PrefixedStore>(*place.store, name_ + "/");
    return place;
  }

  MeetingPlace at_door() {
    const std::string door = identity_.job_name + "/" + name_;
    if (!serves()) return with(read_word(ask_at_door(door, deadline_)));
    MeetingPlace place = serving(make_job_key(), kLoopback, kAnyPort);
    const Word word = word_of(place, {});
    place.host->open(Door(door, to_text(word)));
    return with(word, std::move(place));
  }

  MeetingPlace after(Introduction& introduction) {
    MeetingPlace place;
    Word word;
    if (serves()) {
      place = serving(has_secret() ? shared() : make_job_key(), own_interface(), kAnyPort);
      word = word_of(place, own_addresses());
      if (has_secret()) word.key = JobKey();  // all have it, and whoever carries this need not
      place.host->open(std::nullopt);
    }
    const std::string said =
        introduction.spread(name_, serves() ? to_text(word) : std::string(), deadline_);
    if (!serves()) word = read_word(said);
    if (has_secret()) word.key = shared();
    return with(word, std::move(place));
  }

  MeetingPlace after_caller() {
    if (spread_) {
      CallersIntroduction introduction(spread_);
      return after(introduction);
    }
    fail(Code::invalid_argument,
         fmt::format("{} started {} ranks on several hosts, and only torch can read its store: "
                     "call init from Python, or set HOROVOD_RANK, HOROVOD_SIZE, "
                     "HOROVOD_GLOO_RENDEZVOUS_ADDR, HOROVOD_GLOO_RENDEZVOUS_PORT and "
                     "HOROVOD_SECRET_FILE on each",
                     identity_.launcher, identity_.size));
  }

  MeetingPlace at_address() {
    const Address address{identity_.store_host, identity_.store_port};
    MeetingPlace place;
    place.key = shared();
    if (serves()) {
      place.host = host_store(place.key, own_interface(), address.port);
      place.host->open(std::nullopt);
    }
    const std::string here = knobs_.interface_name.empty() ? kLoopback : own_interface();
    place.store = std::make_unique<StoreClient>(
        std::vector{serves() ? Address{here, address.port} : address}, place.key, identity_.rank,
        deadline_.left(), StoreClient::WhenAbsent::try_again);
    return place;
  }

  MeetingPlace serving(const JobKey& key, const std::string& host, uint16_t port) {
    MeetingPlace place;
    place.key = key;
    place.host = host_store(key, host, port);
    return place;
  }

  /// Every rank keeps a connection to it, and some ask at the door at the same time.
  std::unique_ptr<StoreHost> host_store(const JobKey& key, const std::string& host,
                                        uint16_t port) const {
    const auto size = static_cast<size_t>(identity_.size);
    make_room_for_descriptors(size, fmt::format("serving the store of this job of {} ranks", size));
    return std::make_unique<StoreHost>(key, host, port);
  }

  Word word_of(const MeetingPlace& place, std::vector<std::string> addresses) {
    return {.port = place.host->port(),
            .key = place.key,
            .machine = machine_text(),
            .addresses = std::move(addresses)};
  }

  /// Empty: all.
  std::string own_interface() const {
    return knobs_.interface_name.empty() ? "" : addresses_on(knobs_.interface_name).front();
  }

  std::vector<std::string> own_addresses() const {
    if (!knobs_.interface_name.empty()) return {own_interface()};
    std::vector<std::string> hosts;
    for (const InterfaceAddress& one : interface_addresses())
      if (!one.loopback) hosts.push_back(one.host);
    return hosts;
  }

  MeetingPlace with(const Word& word, MeetingPlace place = {}) {
    std::vector<Address> servers;
    if (word.machine == machine_text() && knobs_.interface_name.empty())
      servers.push_back({kLoopback, word.port});
    for (const std::string& host : word.addresses) servers.push_back({host, word.port});
    if (servers.empty()) {
      fail(Code::invalid_argument,
           fmt::format("{} says that all ranks are on one machine, but rank 0 is on another one, "
                       "or in another network",
                       identity_.launcher));
    }
    place.key = word.key;
    auto client = std::make_unique<StoreClient>(servers, word.key, identity_.rank, deadline_.left(),
                                                StoreClient::WhenAbsent::give_up);
    identity_.store_host = client->server().host;
    identity_.store_port = client->server().port;
    place.store = std::move(client);
    return place;
  }

  Identity& identity_;
  const Environment& environment_;
  const Knobs& knobs_;
  const Spread& spread_;
  const StartDeadline deadline_;
  const std::string name_;
};

}  // namespace

MeetingPlace find_meeting_place(Identity& identity, const Environment& environment,
                                uint32_t generation, const Knobs& knobs, const Spread& spread) {
  if (identity.size == 1) return {};
  return Search(identity, environment, generation, knobs, spread).run();
}

}  // namespace hvd
