// Where the ranks of a job meet: the Store that the launcher serves, or one that rank 0 serves
// after it has introduced itself to the others.
#pragma once

#include <cstdint>
#include <memory>

#include "core/base/knobs.h"
#include "core/group/bootstrap/identity.h"
#include "core/group/bootstrap/introduction.h"
#include "core/group/bootstrap/prefixed_store.h"
#include "core/group/bootstrap/store_host.h"
#include "core/transport/handshake.h"
#include "core/transport/store.h"

namespace hvd {

/// Owned by the Context, for as long as its job.
struct MeetingPlace {
  JobKey key{};
  std::unique_ptr<StoreHost> host;      ///< on rank 0, unless the launcher serves
  std::unique_ptr<Store> store;         ///< none in a job of one rank; goes before `host`
  std::unique_ptr<PrefixedStore> part;  ///< of `store`, where that has several jobs

  Store* of_this_job() const { return part ? part.get() : store.get(); }
};

/// Fills in where the Store is. `spread`: how whoever calls init introduces the ranks; none unless
/// he can. Blocks up to Knobs::start_timeout. Throws Error{timed_out, peer_lost, unauthorized,
/// invalid_argument}.
MeetingPlace find_meeting_place(Identity& identity, const Environment& environment,
                                uint32_t generation, const Knobs& knobs, const Spread& spread);

}  // namespace hvd
