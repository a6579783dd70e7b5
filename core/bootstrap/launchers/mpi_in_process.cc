#include "core/bootstrap/launchers/mpi_in_process.h"

#include <dlfcn.h>
#include <link.h>

#include <optional>
#include <string_view>

namespace hvd {
namespace {

struct LoadedMpi {
  std::string path;  ///< empty: none
  MpiState state = MpiState::never_started;
};

/// The state of MPI in a loaded library; nothing if it is not an MPI library.
std::optional<MpiState> state_in(void* library) {
  using Ask = int (*)(int*);
  const auto initialized = reinterpret_cast<Ask>(::dlsym(library, "MPI_Initialized"));
  const auto finalized = reinterpret_cast<Ask>(::dlsym(library, "MPI_Finalized"));
  int answer = 0;
  if (initialized == nullptr || finalized == nullptr) return std::nullopt;
  if (initialized(&answer) != 0 || answer == 0) return MpiState::never_started;
  return finalized(&answer) == 0 && answer == 0 ? MpiState::running : MpiState::finalized;
}

/// Not through the global scope, since mpi4py may have loaded it with RTLD_LOCAL.
int look(dl_phdr_info* info, size_t /*size*/, void* result) {
  if (std::string_view(info->dlpi_name).find("/libmpi") == std::string_view::npos) return 0;
  void* library = ::dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return 0;
  const std::optional<MpiState> state = state_in(library);
  ::dlclose(library);
  if (!state) return 0;
  auto& found = *static_cast<LoadedMpi*>(result);
  if (found.path.empty() || *state != MpiState::never_started) found = {info->dlpi_name, *state};
  return *state == MpiState::never_started ? 0 : 1;  // 1: stop
}

LoadedMpi loaded_mpi() {
  LoadedMpi found;
  ::dl_iterate_phdr(look, &found);
  return found;
}

}  // namespace

MpiState mpi_in_process() { return loaded_mpi().state; }

std::string loaded_mpi_library() { return loaded_mpi().path; }

}  // namespace hvd
