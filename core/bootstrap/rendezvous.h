// Rendezvous: the out-of-band broadcast of one short text from rank 0 to the other ranks of a job,
// before they know how to connect to each other. The launcher or the caller of init carries it. It
// is used once per job, for the root address (root_address.h); everything else goes through the
// Store. One file per implementation.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/knobs.h"
#include "core/bootstrap/identity.h"
#include "core/bootstrap/start_deadline.h"

namespace hvd {

inline constexpr size_t kMaxRendezvousBytes = 1000;  // PMI-1 has room for 1024

/// Used by one thread.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  /// Collective: every rank of the job calls it, and each gets the `text` that rank 0 passes.
  /// `name`: equal on all ranks, and different for each call. Blocks. Throws Error{timed_out}, and
  /// Error{internal} with the answer of the launcher.
  virtual std::string broadcast(const std::string& name, const std::string& text,
                                const StartDeadline& deadline) = 0;
};

/// Rendezvous::broadcast() as implemented by the caller of init. May throw anything.
using RendezvousFunction =
    std::function<std::string(const std::string& name, const std::string& text)>;

/// PMI-1's text protocol over the connection that the launcher left open.
std::unique_ptr<Rendezvous> make_pmi_rendezvous(const Identity& identity);
/// PMIx. The launcher's own library is located and loaded at run time.
std::unique_ptr<Rendezvous> make_pmix_rendezvous(const Identity& identity,
                                                 const Environment& environment);

}  // namespace hvd
