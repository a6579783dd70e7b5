#include "core/backend/mpi/fake_mpi_testing.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/assert.h"
#include "core/base/bytes.h"
#include "core/kernel/kernel.h"

namespace hvd::test {
namespace {

using mpi::Handle;

constexpr int kWrong = 17;

/// The arguments of a rank for an operation. Blocks are [peer].
struct Part {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::vector<size_t> sent_bytes, sent_at, received_bytes, received_at;
};

/// One operation of a communicator, which completes when the last rank has started it.
struct Collective {
  std::map<int, Part> parts;
  bool done = false;
};

struct Communicator {
  std::vector<int> ranks;  ///< of MPI
  std::map<size_t, Collective> collectives;
};

/// A rank's view of a communicator.
struct Member {
  std::shared_ptr<Communicator> of;
  int rank = 0;
  size_t begun = 0;  ///< operations
};

struct Request {
  std::shared_ptr<Communicator> of;
  size_t collective = 0;
};

struct World {
  FakeMpi seen;
  int acting = 0;
  std::map<std::vector<int>, std::pair<std::shared_ptr<Communicator>, size_t>> forming;
  // The objects behind handles, including leaked ones.
  std::map<Handle, std::unique_ptr<Member>> members;
  std::map<Handle, std::unique_ptr<Request>> requests;
};
World& world() {
  static World instance;
  return instance;
}

// Computes the results from the arguments of all ranks.
using Combine = std::function<void(std::map<int, Part>&)>;

int begin(Handle communicator, Part part, const Combine& combine, Handle* request) {
  FakeMpi& seen = world().seen;
  if (seen.fails) return kWrong;
  auto& member = *reinterpret_cast<Member*>(communicator);
  const auto sum = [](const auto& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), size_t{0});
  };
  ++seen.calls;
  seen.input = part.input;
  seen.output = part.output;
  seen.most_bytes = std::max({seen.most_bytes, sum(part.sent_bytes), sum(part.received_bytes)});
  Collective& collective = member.of->collectives[member.begun];
  auto begun = std::make_unique<Request>(Request{member.of, member.begun});
  *request = reinterpret_cast<Handle>(begun.get());
  world().requests[*request] = std::move(begun);
  ++member.begun;
  const bool is_new = collective.parts.emplace(member.rank, std::move(part)).second;
  HVD_ASSERT(is_new);
  if (collective.parts.size() < member.of->ranks.size()) return 0;
  combine(collective.parts);
  collective.done = true;
  return 0;
}

std::vector<size_t> sizes(const int* counts, int ranks, size_t unit) {
  std::vector<size_t> made;
  for (int i = 0; i < ranks; ++i) made.push_back(static_cast<size_t>(counts[i]) * unit);
  return made;
}
std::vector<size_t> starts(const std::vector<size_t>& sizes) {
  std::vector<size_t> made(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), made.begin(), size_t{0});
  return made;
}
int ranks_of(Handle communicator) {
  return static_cast<int>(reinterpret_cast<Member*>(communicator)->of->ranks.size());
}

/// The reduction of all inputs.
ByteVector reduced(const std::map<int, Part>& parts, size_t bytes, int dtype, int op) {
  std::vector<const void*> sources;
  for (const auto& [rank, part] : parts) sources.push_back(part.input);
  ByteVector result(bytes);
  const auto type = static_cast<DType>(dtype);
  kernel::reduce(static_cast<ReduceOp>(op), type, result.data(), sources,
                 bytes / element_bytes(type));
  return result;
}

int allreduce(Handle communicator, const void* input, void* output, int count, int dtype, int op,
              Handle* request) {
  const size_t bytes = static_cast<size_t>(count) * element_bytes(static_cast<DType>(dtype));
  Part part{.input = static_cast<const std::byte*>(input),
            .output = static_cast<std::byte*>(output),
            .sent_bytes = {bytes},
            .sent_at = {},
            .received_bytes = {bytes},
            .received_at = {}};
  HVD_ASSERT(input != output && bytes > 0);
  return begin(
      communicator, std::move(part),
      [=](std::map<int, Part>& parts) {
        const ByteVector result = reduced(parts, bytes, dtype, op);
        for (auto& [rank, one] : parts) std::memcpy(one.output, result.data(), bytes);
      },
      request);
}

int reduce_scatter(Handle communicator, const void* input, void* output, const int* counts,
                   int dtype, int op, Handle* request) {
  const auto bytes =
      sizes(counts, ranks_of(communicator), element_bytes(static_cast<DType>(dtype)));
  Part part{.input = static_cast<const std::byte*>(input),
            .output = static_cast<std::byte*>(output),
            .sent_bytes = bytes,
            .sent_at = starts(bytes),
            .received_bytes = {},
            .received_at = {}};
  HVD_ASSERT(input != output);
  return begin(
      communicator, std::move(part),
      [=](std::map<int, Part>& parts) {
        const size_t all = std::accumulate(bytes.begin(), bytes.end(), size_t{0});
        const ByteVector result = reduced(parts, all, dtype, op);
        for (auto& [rank, one] : parts)
          std::memcpy(one.output, result.data() + one.sent_at[rank], bytes[rank]);
      },
      request);
}

int broadcast(Handle communicator, void* data, int bytes, int root, Handle* request) {
  Part part{.input = static_cast<std::byte*>(data),
            .output = static_cast<std::byte*>(data),
            .sent_bytes = {static_cast<size_t>(bytes)},
            .sent_at = {},
            .received_bytes = {},
            .received_at = {}};
  return begin(
      communicator, std::move(part),
      [=](std::map<int, Part>& parts) {
        for (auto& [rank, one] : parts) {
          HVD_ASSERT(one.sent_bytes == parts.at(root).sent_bytes);
          if (rank != root) std::memcpy(one.output, parts.at(root).input, one.sent_bytes[0]);
        }
      },
      request);
}

/// Copies the blocks of all ranks for `rank` to its output.
void exchange(std::map<int, Part>& parts) {
  for (auto& [rank, one] : parts) {
    for (const auto& [peer, other] : parts) {
      const size_t bytes = one.received_bytes[peer];
      HVD_ASSERT(bytes == other.sent_bytes[rank]);
      std::byte* const to = one.output + one.received_at[peer];
      if (bytes > 0) std::memcpy(to, other.input + other.sent_at[rank], bytes);
    }
  }
}

int allgather(Handle communicator, const void* input, int bytes, void* output, const int* counts,
              const int* displacements, Handle* request) {
  const int ranks = ranks_of(communicator);
  const auto own = static_cast<size_t>(reinterpret_cast<Member*>(communicator)->rank);
  auto* const target = static_cast<std::byte*>(output);
  Part part{
      .input = static_cast<const std::byte*>(input),
      .output = target,
      .sent_bytes = std::vector<size_t>(static_cast<size_t>(ranks), static_cast<size_t>(bytes)),
      .sent_at = std::vector<size_t>(static_cast<size_t>(ranks)),
      .received_bytes = sizes(counts, ranks, 1),
      .received_at = sizes(displacements, ranks, 1)};
  HVD_ASSERT(bytes == 0 || input != target + part.received_at[own]);
  return begin(communicator, std::move(part), exchange, request);
}

int alltoall(Handle communicator, const void* input, const int* send_counts,
             const int* send_displacements, void* output, const int* receive_counts,
             const int* receive_displacements, Handle* request) {
  const int ranks = ranks_of(communicator);
  Part part{.input = static_cast<const std::byte*>(input),
            .output = static_cast<std::byte*>(output),
            .sent_bytes = sizes(send_counts, ranks, 1),
            .sent_at = sizes(send_displacements, ranks, 1),
            .received_bytes = sizes(receive_counts, ranks, 1),
            .received_at = sizes(receive_displacements, ranks, 1)};
  HVD_ASSERT(input != output);
  return begin(communicator, std::move(part), exchange, request);
}

int test(Handle* request, int* done) {
  auto* const asked = reinterpret_cast<Request*>(*request);
  *done = asked->of->collectives.at(asked->collective).done;
  if (*done != 0) {
    world().requests.erase(std::exchange(*request, 0));
  }
  return 0;
}

int make_communicator(const int* ranks, int count, Handle* made) {
  const std::vector<int> members(ranks, ranks + count);
  const auto own = std::ranges::find(members, world().acting);
  HVD_ASSERT(own != members.end());
  auto& [communicator, joined] = world().forming[members];
  if (joined == 0) communicator = std::make_shared<Communicator>(Communicator{members, {}});
  if (++joined == members.size()) joined = 0;
  auto member =
      std::make_unique<Member>(Member{communicator, static_cast<int>(own - members.begin())});
  *made = reinterpret_cast<Handle>(member.get());
  world().members[*made] = std::move(member);
  ++world().seen.communicators;
  return 0;
}

int free_communicator(Handle communicator) {
  world().members.erase(communicator);
  --world().seen.communicators;
  return 0;
}

void describe(int error, char* text, size_t capacity) {
  std::snprintf(text, capacity, "error %d", error);
}

}  // namespace

FakeMpi& fake_mpi() { return world().seen; }

void act_as(int mpi_rank) { world().acting = mpi_rank; }

const mpi::Table& fresh_fake_mpi() {
  static constexpr mpi::Table kTable{
      .version = mpi::kTableVersion,
      .library = [] { return "Fake MPI"; },
      .start = [](mpi::Reduce, mpi::Facts*) { return 0; },
      .abandon = [] { world().seen.abandoned = true; },
      .is_abandoned = [] { return static_cast<int>(world().seen.abandoned); },
      .describe = describe,
      .make_communicator = make_communicator,
      .free_communicator = free_communicator,
      .allreduce = allreduce,
      .reduce_scatter = reduce_scatter,
      .broadcast = broadcast,
      .allgather = allgather,
      .alltoall = alltoall,
      .test = test,
  };
  world() = {};
  return kTable;
}

}  // namespace hvd::test
