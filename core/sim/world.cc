#include "core/sim/world.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/blocking/small_batches.h"
#include "core/sim/sim_backend.h"

namespace hvd::sim {
namespace {

constexpr uint32_t kGeneration = 1;
constexpr size_t kRingBytes = 4096;  // not used: control goes over links
constexpr size_t kEagerBytes = 4 * KiB;
constexpr std::chrono::minutes kLongestEnd{10};  // of virtual time; engines flush for less

Request on_tensor(OperationKind kind, const std::string& name, std::vector<float>& tensor) {
  Request made = request(kind, name);
  const Shape shape{static_cast<int64_t>(tensor.size())};
  made.signature.operation.dtype = DType::float32;
  made.signature.shapes = {shape};
  auto* data = reinterpret_cast<std::byte*>(tensor.data());
  made.tensors = {{.input = data, .output = data, .shape = shape}};
  return made;
}

Backends backends_of(const WorldOptions& options, int& moving, uint64_t seed) {
  return Backends(
      std::make_unique<SimBackend>(host_backend(options.knobs, options.seed % 2 == 0), moving,
                                   SimBackendOptions{.launches = options.launches, .seed = seed}));
}

}  // namespace

World::World(const WorldOptions& options)
    : quiet_turns_(options.launches ? 2 * kQuietTurns : kQuietTurns),
      least_link_bytes_(options.least_link_bytes),
      keeps_connections_(options.keeps_connections),
      random_(options.seed) {
  const Topology topology = Topology::of(options.ranks_per_host);
  const int size = topology.ranks();
  ranks_.resize(static_cast<size_t>(size));
  Wirings wirings(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    Wiring& wiring = wirings[rank];
    wiring.identity.rank = rank;
    wiring.identity.size = size;
    wiring.topology = topology;
    wiring.generation = kGeneration;
    auto waiter = std::make_unique<SimWaiter>(random_);
    ranks_[rank].number = rank;
    ranks_[rank].waiter = waiter.get();
    wiring.waiter = std::move(waiter);
  }
  if (options.shared_memory) share_memory(wirings, topology, options.knobs);
  if (!options.shared_memory || topology.hosts() > 1) link_all(wirings);
  link_tree(wirings, topology);
  Knobs knobs = options.knobs;
  knobs.heartbeat = options.heartbeat;
  for (int rank = 0; rank < size; ++rank) {
    ranks_[rank].engine = std::make_unique<Engine>(
        std::move(wirings[rank]), knobs, clock_,
        [this, rank](const Ending& ending, bool) { ranks_[rank].ending = ending; },
        [&] { return backends_of(options, ranks_[rank].moving, random_()); });
  }
}

std::unique_ptr<Channel> World::channel(int rank, int peer, std::unique_ptr<MemLink> link) {
  auto wire = std::make_unique<Wire>(std::move(link), peer);
  ranks_[rank].wires.push_back(wire.get());
  return std::make_unique<Channel>(std::move(wire), peer, kGeneration);
}

World::Channels World::link(int first, int second) {
  auto [near, far] = MemLink::make_pair({.capacity = least_link_bytes_ + random_() % 5000,
                                         .split_seed = random_() | 1,
                                         .first_rank = first,
                                         .second_rank = second});
  return {channel(first, second, std::move(near)), channel(second, first, std::move(far))};
}

void World::share_memory(Wirings& wirings, const Topology& topology, const Knobs& knobs) {
  for (const std::vector<int>& locals : topology.host_ranks) {
    if (locals.size() == 1) continue;
    auto layout = SegmentLayout::of(static_cast<int>(locals.size()),
                                    static_cast<size_t>(knobs.staging_bytes), kRingBytes);
    if (topology.host_ranks.size() == 1) {  // like connect(), with less memory
      layout.eager_bytes = kEagerBytes;
      layout.eager_ring_bytes = EagerBuffers::least_ring_bytes(kEagerBytes);
    }
    const auto& memory =
        memories_.emplace_back(std::make_unique<SegmentMemory>(layout.total_bytes()));
    for (size_t i = 0; i < locals.size(); ++i)
      wirings[locals[i]].segment =
          std::make_unique<HostSegment>(memory->bytes(), layout, kGeneration, static_cast<int>(i));
    for (size_t i = 0; i < locals.size(); ++i) {
      for (const int peer : locals) {
        if (peer == locals[i]) continue;
        ranks_[locals[i]].local_peers.push_back(peer);
        wirings[peer].local_peers.push_back(
            {.rank = locals[i], .local_rank = static_cast<int>(i), .process = FileDescriptor()});
      }
    }
  }
}

void World::link_all(Wirings& wirings) {
  for (Wiring& wiring : wirings) wiring.mesh = std::make_unique<Mesh>();
  for (int rank = 0; rank < size(); ++rank) {
    for (int peer = 0; peer < rank; ++peer) {
      auto [near, far] = link(rank, peer);
      wirings[rank].mesh->add(std::move(near));
      wirings[peer].mesh->add(std::move(far));
    }
  }
}

// Negotiation uses links also on one host: they report losses in the simulation.
void World::link_tree(Wirings& wirings, const Topology& topology) {
  for (int rank = 1; rank < size(); ++rank) {
    const int host = topology.host_of[rank];
    const bool leads = topology.is_leader(rank);
    const int parent = topology.leader(leads ? topology.parent_host(host) : host);
    auto [near, far] = link(rank, parent);
    wirings[rank].parent = std::move(near);
    wirings[parent].children.push_back(
        {topology.child_towards(topology.host_of[parent], rank), std::move(far)});
  }
}

World::~World() {
  for (Rank& rank : ranks_) {
    if (!rank.engine->finished()) rank.engine->abandon(Error(Code::internal, "the world ends"));
    for (Wire* wire : rank.wires) wire->break_now();
  }
  for (Rank& rank : ranks_) {
    const TimePoint limit = clock_.now() + kLongestEnd;
    while (!rank.engine->finished()) {
      HVD_ASSERT(clock_.now() < limit);  // otherwise it never comes to its end
      turn(rank);
      clock_.advance(std::chrono::milliseconds(1));  // until it no longer flushes
    }
  }
}

std::shared_ptr<Completion> World::submit(int rank, Request request) {
  quiet_ = 0;
  auto operation = request.completion;
  const std::optional<Refusal> refusal = ranks_[rank].engine->submit(std::move(request));
  if (!refusal) return operation;
  if (refusal->why == Refusal::Why::name_in_flight) {
    operation->handle.complete({Code::invalid_argument, "the name is in flight", rank});
  } else {
    const Ending& ending = ranks_[rank].ending;
    operation->handle.complete({ending.code, ending.text, ending.rank});
  }
  return operation;
}

void World::shutdown(int rank) {
  quiet_ = 0;
  ranks_[rank].engine->submit_shutdown();
}

void World::lose(int rank) {
  quiet_ = 0;
  ranks_[rank].lost = true;
  for (Wire* wire : ranks_[rank].wires) random_() % 2 == 0 ? wire->break_now() : wire->close();
  end_process(rank);
}

void World::fail(int rank) {
  quiet_ = 0;
  ranks_[rank].engine->abandon(Error(Code::internal, "no memory"));
}

void World::end_process(int rank) {
  for (const int peer : ranks_[rank].local_peers) ranks_[peer].waiter->tell_end(rank);
}

void World::resume(int rank) {
  quiet_ = 0;
  ranks_[rank].stopped = false;
  for (Wire* wire : ranks_[rank].wires) wire->look_again();
}

void World::hold(int from, int to, bool held) {
  quiet_ = 0;
  for (Wire* wire : ranks_[to].wires) {
    if (wire->peer() == from) wire->hold(held);
  }
}

bool World::step() {
  Rank& rank = ranks_[random_() % ranks_.size()];
  return rank.runs() && turn(rank);
}

bool World::turn(Rank& rank) {
  if (rank.engine->finished()) return false;
  bool moved = rank.waiter->has_news();
  try {
    rank.engine->take_events();
    moved |= rank.engine->turn();
  } catch (const Error& error) {  // like the ProgressThread
    moved = true;
    rank.engine->abandon(error);
  }
  if (rank.engine->finished() && !keeps_connections_) {
    for (Wire* wire : rank.wires) wire->close();
    end_process(rank.number);
  }
  return moved;
}

bool World::pass_time() {
  std::optional<TimePoint> next = alarm_;
  for (const Rank& rank : ranks_) {
    const auto deadline = rank.engine->deadline();
    if (rank.runs() && !rank.engine->finished() && deadline && (!next || *deadline < *next))
      next = deadline;
  }
  if (next && *next > clock_.now()) clock_.advance(*next - clock_.now());
  return next.has_value();
}

Request request(OperationKind kind, const std::string& name) {
  Request made;
  made.name = name;
  made.signature.name = hash_name(name);
  made.signature.operation.kind = kind;
  made.completion = std::make_shared<Completion>();
  return made;
}

Request allreduce(const std::string& name, std::vector<float>& tensor, ReduceOp op) {
  Request made = on_tensor(OperationKind::allreduce, name, tensor);
  made.signature.operation.op = op;
  return made;
}

Request allgather(const std::string& name, std::vector<float>& tensor) {
  Request made = on_tensor(OperationKind::allgather, name, tensor);
  made.signature.shapes[0][0] = -1;
  made.completion->outputs.resize(1);
  made.tensors[0].output = nullptr;
  made.tensors[0].gathered = &made.completion->outputs[0].gathered;
  return made;
}

Request broadcast(const std::string& name, std::vector<float>& tensor, int root) {
  Request made = on_tensor(OperationKind::broadcast, name, tensor);
  made.signature.operation.root = root;
  return made;
}

Request barrier(const std::string& name) { return request(OperationKind::barrier, name); }

Request join() { return request(OperationKind::join, "join"); }

Request add_process_set(const std::vector<int>& members) {
  Request made = request(OperationKind::add_process_set, "process_sets");
  made.signature.members = members;
  return made;
}

Request remove_process_set(const ProcessSet& set) {
  Request made = request(OperationKind::remove_process_set, "process_sets");
  made.signature.members = set.ranks;
  made.signature.target = set.group;
  return made;
}

Request on(const ProcessSet& set, Request request) {
  request.group = set.group;
  return request;
}

}  // namespace hvd::sim
