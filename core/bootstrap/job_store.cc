#include "core/bootstrap/job_store.h"

#include <fmt/core.h>

#include <utility>

#include "core/base/descriptor_limit.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/bootstrap/encryption.h"
#include "core/bootstrap/generation.h"
#include "core/bootstrap/job_key.h"
#include "core/bootstrap/local_rendezvous.h"
#include "core/bootstrap/machine.h"
#include "core/bootstrap/root_address.h"
#include "core/bootstrap/secret_file.h"
#include "core/bootstrap/store_at_address.h"
#include "core/transport/interfaces.h"
#include "core/transport/store_client.h"

namespace hvd {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr uint16_t kAnyPort = 0;

/// Ranks for which this is equal reach each other over loopback.
std::string machine_text() {
  const NameHash hash = hash_name(kernel_name() + network_name());
  return fmt::format("{:016x}", hash.high);
}

class CallerRendezvous final : public Rendezvous {
 public:
  explicit CallerRendezvous(const RendezvousFunction& function) : function_(function) {}
  std::string broadcast(const std::string& name, const std::string& text,
                        const StartDeadline& /*deadline*/) override {
    return function_(name, text);
  }

 private:
  const RendezvousFunction& function_;
};

class Opener {
 public:
  Opener(Identity& identity, const Environment& environment, uint32_t inits, const Knobs& knobs,
         const RendezvousFunction& rendezvous)
      : identity_(identity),
        environment_(environment),
        knobs_(knobs),
        callers_rendezvous_(rendezvous),
        deadline_(knobs.start_timeout),
        inits_(inits) {}

  JobStore run() {
    if (identity_.rendezvous == RendezvousMethod::launcher) return served_by_launcher();
    generation_ = generation_of(std::nullopt, inits_);
    JobStore opened = served_by_rank_0();
    opened.generation = generation_;
    return opened;
  }

 private:
  JobStore served_by_rank_0() {
    switch (identity_.rendezvous) {
      case RendezvousMethod::local:
        return by_local_socket();
      case RendezvousMethod::address:
        return at_address();
      case RendezvousMethod::pmi:
        return by(*make_pmi_rendezvous(identity_));
      case RendezvousMethod::pmix:
        return by(*make_pmix_rendezvous(identity_, environment_));
      case RendezvousMethod::caller:
      case RendezvousMethod::launcher:  // run()
        break;
    }
    return by_caller();
  }

  StoreClient::Options as(int rank) const {
    return {.rank = rank, .encryption = encryption_of(knobs_)};
  }
  std::string name() const { return rendezvous_name(generation_, identity_.members); }

  bool serves() const { return identity_.rank == 0; }
  bool has_secret() const { return !knobs_.secret_file.empty(); }
  JobKey shared() const { return shared_key(knobs_, {identity_.store_host, identity_.store_port}); }

  JobStore served_by_launcher() {
    JobStore opened;
    const int rank = identity_.launcher_rank(identity_.rank);
    const KeyAnswer answer = ask_for_key(
        environment_, {.rank = identity_.process_number(), .generation = identity_.generation},
        deadline_);
    generation_ = opened.generation = generation_of(answer.generation, inits_);
    opened.key = answer.key;
    opened.store = std::make_unique<StoreClient>(
        std::vector{Address{identity_.store_host, identity_.store_port}}, opened.key, as(rank),
        deadline_.left());
    if (!identity_.members.empty())  // jobs of other ranks may use the same Store
      opened.part = std::make_unique<PrefixedStore>(*opened.store, name() + "/");
    return opened;
  }

  JobStore by_local_socket() {
    const std::string job = identity_.job_name + "/" + name();
    if (!serves()) return connected_to(read_root_address(request_root_address(job, deadline_)));
    JobStore opened = serving(make_job_key(), kLoopback, kAnyPort);
    const RootAddress root = root_address_of(opened, {});
    opened.host->open(RendezvousListener(job, to_text(root)));
    return connected_to(root, std::move(opened));
  }

  JobStore by(Rendezvous& rendezvous) {
    JobStore opened;
    RootAddress root;
    if (serves()) {
      opened = serving(has_secret() ? shared() : make_job_key(), own_interface(), kAnyPort);
      root = root_address_of(opened, own_addresses());
      if (has_secret()) root.key = JobKey();  // every rank has it; the carrier must not see it
      opened.host->open(std::nullopt);
    }
    const std::string received =
        rendezvous.broadcast(name(), serves() ? to_text(root) : std::string(), deadline_);
    if (!serves()) root = read_root_address(received);
    if (has_secret()) root.key = shared();
    return connected_to(root, std::move(opened));
  }

  JobStore by_caller() {
    if (callers_rendezvous_) {
      CallerRendezvous rendezvous(callers_rendezvous_);
      return by(rendezvous);
    }
    fail(Code::invalid_argument,
         fmt::format("{} started {} ranks on several hosts, and only torch can read its store: "
                     "call init from Python, or set HOROVOD_RANK, HOROVOD_SIZE, "
                     "HOROVOD_GLOO_RENDEZVOUS_ADDR, HOROVOD_GLOO_RENDEZVOUS_PORT and "
                     "HOROVOD_SECRET_FILE for each",
                     identity_.launcher, identity_.size));
  }

  JobStore at_address() {
    const Address address{identity_.store_host, identity_.store_port};
    JobStore opened;
    opened.key = shared();
    if (serves()) {
      opened.host = host_store(opened.key, own_interface(), address.port);
      opened.host->open(std::nullopt);
    }
    const std::string here = knobs_.interface_name.empty() ? kLoopback : own_interface();
    opened.store = connect_at_address(name(), serves() ? Address{here, address.port} : address,
                                      opened.key, as(identity_.rank), deadline_);
    return opened;
  }

  JobStore serving(const JobKey& key, const std::string& host, uint16_t port) const {
    JobStore opened;
    opened.key = key;
    opened.host = host_store(key, host, port);
    return opened;
  }

  /// Every rank keeps a connection to the Store, and some connect to the listener at the same time.
  std::unique_ptr<StoreHost> host_store(const JobKey& key, const std::string& host,
                                        uint16_t port) const {
    const auto size = static_cast<size_t>(identity_.size);
    make_room_for_descriptors(size, fmt::format("serving the store of this job of {} ranks", size));
    return std::make_unique<StoreHost>(key, host, port);
  }

  static RootAddress root_address_of(const JobStore& opened, std::vector<std::string> addresses) {
    return {.port = opened.host->port(),
            .key = opened.key,
            .machine = machine_text(),
            .addresses = std::move(addresses)};
  }

  /// The address of the chosen interface; empty: all interfaces.
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

  JobStore connected_to(const RootAddress& root, JobStore opened = {}) {
    std::vector<Address> servers;
    if (root.machine == machine_text() && knobs_.interface_name.empty())
      servers.push_back({kLoopback, root.port});
    for (const std::string& host : root.addresses) servers.push_back({host, root.port});
    if (servers.empty()) {
      fail(Code::invalid_argument,
           fmt::format("according to {} all ranks are on one machine, but rank 0 is on another "
                       "machine or in another network namespace",
                       identity_.launcher));
    }
    opened.key = root.key;
    auto client =
        std::make_unique<StoreClient>(servers, root.key, as(identity_.rank), deadline_.left());
    identity_.store_host = client->server().host;
    identity_.store_port = client->server().port;
    opened.store = std::move(client);
    return opened;
  }

  Identity& identity_;
  const Environment& environment_;
  const Knobs& knobs_;
  const RendezvousFunction& callers_rendezvous_;
  const StartDeadline deadline_;
  const uint32_t inits_;
  uint32_t generation_ = 0;
};

}  // namespace

JobStore open_job_store(Identity& identity, const Environment& environment, uint32_t inits,
                        const Knobs& knobs, const RendezvousFunction& rendezvous) {
  if (identity.size == 1) return {.generation = generation_of(std::nullopt, inits)};
  return Opener(identity, environment, inits, knobs, rendezvous).run();
}

}  // namespace hvd
