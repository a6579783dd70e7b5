// The generation of a job: a number that distinguishes the jobs which the same ranks form one after
// another (init, shutdown or the loss of a rank, init again), and the names derived from it. Pure.
//
// Who decides it:
//  - The launcher, if it serves the Store (RendezvousMethod::launcher). It assigns the number at
//    every init, together with the job's key (KeyAnswer::generation). That value is used as it is.
//    Only the launcher can know it: several processes may be a rank one after the other, and
//    numbers may be skipped.
//  - With other methods there is no one to assign it. It is the number of calls of init in this
//    process, so all ranks must call init equally often. A job of one rank needs no key and does
//    not ask the launcher; it counts too.
//
// Each generation has a rendezvous of its own. The number is part of the name of the rendezvous and
// of every key in the Store. It is also in each handshake (Hello), frame header and memory segment.
// So a rank of an earlier generation, or what it has published, is never taken for one of this job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hvd {

/// `assigned`: by the launcher. `inits`: how many times this process has called init, from 1.
/// Throws Error{internal} if the launcher has assigned 0, which is the generation of the Store
/// itself.
uint32_t generation_of(std::optional<uint32_t> assigned, uint32_t inits);

/// The name of the rendezvous of a job. Differs between generations of the same ranks, and between
/// jobs of different `members` (Identity::members; empty: all).
std::string rendezvous_name(uint32_t generation, const std::vector<int>& members);

}  // namespace hvd
