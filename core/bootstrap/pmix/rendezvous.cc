// Rendezvous by PMIx. The process that speaks it depends on the launcher
// (docs/decisions/0018-rendezvous-through-the-launcher.md):
//  - MPI runs in this process: this one, from PMIx_Init to PMIx_Finalize, which MPI's library
//  counts.
//  - Open MPI 5: a helper process that stays. A process that has finalized PMIx cannot start MPI.
//  - Open MPI 4, Slurm: this one, with PMIx_Finalize at exit. If a helper ended, the server would
//    forget this rank.
#include "core/bootstrap/rendezvous.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "core/bootstrap/launchers/mpi_in_process.h"
#include "core/bootstrap/pmix/helper.h"
#include "core/bootstrap/pmix/library.h"
#include "core/bootstrap/pmix/session.h"
#include "core/bootstrap/variables.h"

namespace hvd {
namespace {

struct AtExit {
  pmix::Status (*finalize)(const pmix::Info*, size_t);
  pid_t process;
};

/// The launcher takes an exit without it for a failure. Not in a forked child.
void finalize_at_exit(const pmix::Library& library) {
  ::on_exit(
      [](int, void* object) {
        const std::unique_ptr<AtExit> end(static_cast<AtExit*>(object));
        if (end->process == ::getpid()) end->finalize(nullptr, 0);
      },
      new AtExit{library.finalize, ::getpid()});
}

class PmixRendezvous final : public Rendezvous {
 public:
  PmixRendezvous(const Identity& identity, const Environment& environment)
      : identity_(identity),
        is_prrte_(variable(environment, "PRTE_LAUNCHED").has_value()),
        paths_(pmix::library_paths(environment)) {}

  std::string broadcast(const std::string& name, const std::string& text,
                        const StartDeadline& deadline) override {
    const pmix::BroadcastRequest request{.name = name,
                                         .text = text,
                                         .is_rank_0 = identity_.rank == 0,
                                         .rank_0 = identity_.launcher_rank(0),
                                         .launcher = identity_.launcher,
                                         .deadline = deadline};
    if (mpi_in_process() == MpiState::running) return beside_mpi(request);
    return is_prrte_ ? pmix::publish_by_helper(paths_, request) : until_exit(request);
  }

 private:
  std::string beside_mpi(const pmix::BroadcastRequest& request) const {
    const pmix::Session session(pmix::load_library(paths_));
    std::string text = is_prrte_ ? session.by_publishing(request) : session.by_fence(request);
    session.finish();
    return text;
  }

  std::string until_exit(const pmix::BroadcastRequest& request) const {
    const pmix::Library library = pmix::load_library(paths_);
    const pmix::Session session(library);
    finalize_at_exit(library);
    return session.by_fence(request);
  }

  const Identity identity_;
  const bool is_prrte_;  ///< Open MPI 5, or its daemons without it
  const std::vector<std::string> paths_;
};

}  // namespace

std::unique_ptr<Rendezvous> make_pmix_rendezvous(const Identity& identity,
                                                 const Environment& environment) {
  return std::make_unique<PmixRendezvous>(identity, environment);
}

}  // namespace hvd
