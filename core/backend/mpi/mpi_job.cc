#include "core/backend/mpi/mpi_job.h"

#include <fmt/core.h>

#include <array>
#include <numeric>
#include <string>

#include "core/backend/mpi/plugin_loader.h"
#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/bootstrap/launchers/mpi_in_process.h"
#include "core/kernel/kernel.h"

namespace hvd::mpi {
namespace {

constexpr const char* kKnob = "HOROVOD_CPU_OPERATIONS=mpi";

void reduce(void* target, const void* other, size_t elements, int dtype, int op) {
  const std::array<const void*, 2> sources{target, other};
  kernel::reduce(static_cast<ReduceOp>(op), static_cast<DType>(dtype), target, sources, elements);
}

[[noreturn]] void refuse(const std::string& why) {
  fail(Code::invalid_argument, fmt::format("{}: {}", kKnob, why));
}

void check_knobs(const Knobs& knobs) {
  if (knobs.encrypt)
    refuse(
        "it cannot be combined with HOROVOD_TLS=1, because MPI does not encrypt; unset one of the "
        "two variables");
  if (!knobs.deterministic) return;
  refuse(
      "it cannot be combined with HOROVOD_DETERMINISTIC=1, because MPI chooses the order of "
      "additions; unset one of the two variables");
}

void check_state(const Table& table) {
  if (mpi_in_process() == MpiState::finalized)
    refuse("this program has already called MPI_Finalize; call hvd.init() before it");
  if (table.is_abandoned() != 0)
    refuse(
        "MPI cannot continue, because an earlier job of this process has lost a rank; restart the "
        "script");
}

void check_facts(const Table& table, const Facts& facts, const Identity& identity) {
  if (facts.any_thread == 0) {
    refuse(
        fmt::format("{} was initialized with a thread level below MPI_THREAD_MULTIPLE; call "
                    "MPI_Init_thread with that level (the default of mpi4py), or let hvd.init() "
                    "initialize MPI",
                    table.library()));
  }
  const int last = identity.launcher_rank(identity.size - 1);
  const bool same_ranks = identity.rendezvous == RendezvousMethod::caller ||
                          identity.launcher_rank(identity.rank) == facts.rank;
  if (same_ranks && last < facts.size) return;
  refuse(
      fmt::format("{} reports rank {} of {} for this process, but {} reports rank {} of {}; they "
                  "probably belong to different MPI installations: use the mpirun of the library",
                  table.library(), facts.rank, facts.size, identity.launcher,
                  identity.launcher_rank(identity.rank), last + 1));
}

/// Exchanges MPI ranks through the Store. Returns [rank of the job] the rank in MPI.
std::vector<int> tell_each_other(const Running& mpi, const Identity& identity, Store& store,
                                 uint32_t generation, const Knobs& knobs) {
  const auto key = [&](int rank) { return fmt::format("mpi/{}/{}", generation, rank); };
  store.set(key(identity.rank), as_bytes(std::to_string(mpi.facts.rank)));
  std::vector<int> ranks;
  for (int rank = 0; rank < identity.size; ++rank) {
    const ByteVector told = store.get(key(rank), knobs.start_timeout);
    ranks.push_back(
        std::stoi(std::string(reinterpret_cast<const char*>(told.data()), told.size())));
  }
  return ranks;
}

}  // namespace

Running start_mpi(const Environment& environment, const Knobs& knobs, const Identity& identity) {
  check_knobs(knobs);
  Running mpi{.table = &load_plugin(environment)};
  check_state(*mpi.table);
  if (const int error = mpi.table->start(reduce, &mpi.facts); error != 0) {
    std::array<char, 512> text{};
    mpi.table->describe(error, text.data(), text.size());
    fail(Code::internal, fmt::format("{} cannot start: {}", mpi.table->library(), text.data()));
  }
  check_facts(*mpi.table, mpi.facts, identity);
  return mpi;
}

std::unique_ptr<MpiCarrier> carrier_of_job(const Running& mpi, const Identity& identity,
                                           Store* store, uint32_t generation, const Knobs& knobs) {
  std::vector<int> all(static_cast<size_t>(identity.size)), mpi_ranks;
  std::iota(all.begin(), all.end(), 0);
  if (identity.rendezvous == RendezvousMethod::caller && store != nullptr) {
    mpi_ranks = tell_each_other(mpi, identity, *store, generation, knobs);
  } else {
    for (const int rank : all) mpi_ranks.push_back(identity.launcher_rank(rank));
  }
  auto carrier = std::make_unique<MpiCarrier>(*mpi.table, std::move(mpi_ranks));
  carrier->make_communicator(all);
  return carrier;
}

}  // namespace hvd::mpi
