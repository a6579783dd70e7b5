// Opens the Store through which the ranks of a job exchange cards and addresses. The launcher
// serves it, or rank 0 does and announces its address by a rendezvous.
#pragma once

#include <cstdint>
#include <memory>

#include "core/base/knobs.h"
#include "core/bootstrap/identity.h"
#include "core/bootstrap/prefixed_store.h"
#include "core/bootstrap/rendezvous.h"
#include "core/bootstrap/store_host.h"
#include "core/transport/handshake.h"
#include "core/transport/store.h"

namespace hvd {

/// Owned by the Context, for as long as its job.
struct JobStore {
  JobKey key{};
  uint32_t generation = 0;                ///< of this job, see generation.h
  std::unique_ptr<StoreHost> host{};      ///< on rank 0, unless the launcher serves
  std::unique_ptr<Store> store{};         ///< empty in a job of one rank; destroyed before `host`
  std::unique_ptr<PrefixedStore> part{};  ///< of `store`, if several jobs share that

  /// The keys of this job. nullptr in a job of one rank.
  Store* of_this_job() const { return part ? part.get() : store.get(); }
};

/// Collective over the ranks of the job. Blocks up to Knobs::start_timeout. Writes the address of
/// the Store to `identity`. `inits`: how many times this process has called init, from 1: the
/// generation, unless the launcher assigns one. `rendezvous`: by the caller of init; empty if there
/// is none. Throws Error{timed_out, peer_lost, unauthorized, invalid_argument}.
JobStore open_job_store(Identity& identity, const Environment& environment, uint32_t inits,
                        const Knobs& knobs, const RendezvousFunction& rendezvous);

}  // namespace hvd
