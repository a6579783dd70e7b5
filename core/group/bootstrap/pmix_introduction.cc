// PMIx. In which way, and where that may be done, depends on the launcher
// (docs/decisions/0018-an-introduction-by-whoever-started-the-ranks.md):
//  - MPI runs in this process: here, since its library is at home here.
//  - Open MPI 5: in a helper that stays. A process that has once ended its PMIx cannot start MPI
//    any more.
//  - Open MPI 4, Slurm: here, and PMIx ends with the process. A helper would take what the daemon
//    knows of this rank with it.
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "core/group/bootstrap/introduction.h"
#include "core/group/bootstrap/mpi_in_process.h"
#include "core/group/bootstrap/pmix_exchange.h"
#include "core/group/bootstrap/pmix_helper.h"
#include "core/group/bootstrap/pmix_library.h"
#include "core/group/bootstrap/variables.h"

namespace hvd {
namespace {

struct AtExit {
  pmix::Status (*finalize)(const pmix::Info*, size_t);
  pid_t process;
};

/// The launcher takes an end without it for a failure. A forked child is not the one to say it.
void finalize_at_exit(const pmix::Library& library) {
  ::on_exit(
      [](int, void* object) {
        const std::unique_ptr<AtExit> end(static_cast<AtExit*>(object));
        if (end->process == ::getpid()) end->finalize(nullptr, 0);
      },
      new AtExit{library.finalize, ::getpid()});
}

class PmixIntroduction final : public Introduction {
 public:
  PmixIntroduction(const Identity& identity, const Environment& environment)
      : identity_(identity),
        is_prrte_(variable(environment, "PRTE_LAUNCHED").has_value()),
        paths_(pmix::library_paths(environment)) {}

  std::string spread(const std::string& name, const std::string& mine,
                     const StartDeadline& deadline) override {
    const pmix::Errand errand{.name = name,
                              .text = mine,
                              .is_rank_0 = identity_.rank == 0,
                              .rank_0 = identity_.launcher_rank(0),
                              .launcher = identity_.launcher,
                              .deadline = deadline};
    if (mpi_in_process() == MpiState::running) return beside_mpi(errand);
    return is_prrte_ ? pmix::publish_by_helper(paths_, errand) : until_exit(errand);
  }

 private:
  std::string beside_mpi(const pmix::Errand& errand) const {
    const pmix::Exchange exchange(pmix::load_library(paths_));
    std::string text = is_prrte_ ? exchange.by_publishing(errand) : exchange.by_fence(errand);
    exchange.finish();
    return text;
  }

  std::string until_exit(const pmix::Errand& errand) const {
    const pmix::Library library = pmix::load_library(paths_);
    const pmix::Exchange exchange(library);
    finalize_at_exit(library);
    return exchange.by_fence(errand);
  }

  const Identity identity_;
  const bool is_prrte_;  ///< Open MPI 5, or its daemons without it
  const std::vector<std::string> paths_;
};

}  // namespace

std::unique_ptr<Introduction> introduce_by_pmix(const Identity& identity,
                                                const Environment& environment) {
  return std::make_unique<PmixIntroduction>(identity, environment);
}

}  // namespace hvd
