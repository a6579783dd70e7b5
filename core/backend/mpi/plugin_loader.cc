#include "core/backend/mpi/plugin_loader.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <fmt/format.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/bootstrap/ancestors.h"
#include "core/bootstrap/launchers/mpi_in_process.h"
#include "core/bootstrap/variables.h"

namespace hvd::mpi {
namespace {

using std::filesystem::path;

constexpr const char* kKnob = "HOROVOD_CPU_OPERATIONS=mpi";

std::string name_of(Kind kind) { return kind == Kind::open_mpi ? "Open MPI" : "MPICH"; }

/// The library of MPICH has a different name on Debian.
std::vector<std::string> library_names(Kind kind) {
  if (kind == Kind::open_mpi) return {"libmpi.so.40"};
  return {"libmpi.so.12", "libmpich.so.12"};
}

/// Prefers the library of the launcher's installation to those of the system.
Choice choice_of(Kind kind, const Environment& environment,
                 const std::vector<std::string>& programs) {
  Choice choice{.kind = kind, .libraries = {}};
  const std::string first = library_names(kind).front();
  if (const auto folder = variable(environment, "OMPI_LIBDIR_LOC");
      folder && kind == Kind::open_mpi)
    choice.libraries.push_back(path(*folder) / first);
  for (const std::string& program : programs) {
    const path beside = path(program).parent_path().parent_path() / "lib" / first;
    std::error_code none;
    if (std::filesystem::exists(beside, none)) choice.libraries.push_back(beside);
  }
  for (const std::string& name : library_names(kind)) choice.libraries.push_back(name);
  return choice;
}

Choice choice_of_loaded(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  const bool open_mpi = handle != nullptr && ::dlsym(handle, "ompi_mpi_comm_world") != nullptr;
  return {.kind = open_mpi ? Kind::open_mpi : Kind::mpich, .libraries = {library}};
}

/// Loads with global symbols: the plugin and components that MPI loads later need them.
std::string load_library(const Choice& choice) {
  std::vector<std::string> reasons;
  for (const std::string& library : choice.libraries) {
    if (::dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return library;
    reasons.emplace_back(::dlerror());
  }
  fail(Code::invalid_argument,
       fmt::format("{}: the ranks were started by mpirun of {}, but its library cannot be loaded "
                   "({}); install it on every host (Debian: {}), add its directory to "
                   "LD_LIBRARY_PATH, or unset the variable",
                   kKnob, name_of(choice.kind), fmt::join(reasons, "; "),
                   choice.kind == Kind::open_mpi ? "libopenmpi3" : "libmpich12"));
}

/// Returns the directory of the shared library or executable that contains this code.
path own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0) return ".";
  std::error_code none;
  return std::filesystem::weakly_canonical(info.dli_fname, none).parent_path();
}

[[noreturn]] void refuse_plugin(Kind kind, const path& file, const std::string& why) {
  fail(Code::invalid_argument,
       fmt::format("{}: this installation of Horovod does not support {}: {} {}. The plugin is "
                   "built if {} is found during the installation: apt-get install {}, then pip "
                   "install --force-reinstall --no-cache-dir; or unset the variable",
                   kKnob, name_of(kind), file.string(), why,
                   kind == Kind::open_mpi ? "mpicc.openmpi or mpicc" : "mpicc.mpich or mpicc",
                   kind == Kind::open_mpi ? "libopenmpi-dev" : "libmpich-dev"));
}

}  // namespace

std::string plugin_name(Kind kind) {
  return kind == Kind::open_mpi ? "libhorovod_mpi_openmpi.so" : "libhorovod_mpi_mpich.so";
}

Choice choose_mpi(const Environment& environment, const std::vector<std::string>& programs) {
  const auto is_set = [&](const char* name) { return variable(environment, name).has_value(); };
  if (is_set("OMPI_COMM_WORLD_SIZE")) return choice_of(Kind::open_mpi, environment, programs);
  if (is_set("PMI_SIZE")) return choice_of(Kind::mpich, environment, programs);
  if (is_set("PMIX_RANK")) return choice_of(Kind::open_mpi, environment, programs);
  fail(
      Code::invalid_argument,
      fmt::format("{} needs ranks that mpirun has started, of Open MPI or MPICH, but its variables "
                  "OMPI_COMM_WORLD_SIZE, PMI_SIZE and PMIX_RANK are not set: start the job with "
                  "mpirun or horovodrun --mpi, or unset the variable",
                  kKnob));
}

const Table& load_plugin(const Environment& environment) {
  std::vector<std::string> programs;
  for (const pid_t process : ancestors()) programs.push_back(program_of(process));
  const std::string loaded = loaded_mpi_library();
  const Choice choice =
      loaded.empty() ? choose_mpi(environment, programs) : choice_of_loaded(loaded);
  const path file = own_folder() / plugin_name(choice.kind);
  std::error_code none;
  if (!std::filesystem::exists(file, none)) refuse_plugin(choice.kind, file, "does not exist");
  const std::string library = load_library(choice);
  void* const plugin = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr)
    refuse_plugin(choice.kind, file,
                  fmt::format("is not compatible with {}: {}", library, ::dlerror()));
  using Ask = const Table* (*)();
  const auto ask = reinterpret_cast<Ask>(::dlsym(plugin, kTableFunction));
  if (ask == nullptr || ask()->version != kTableVersion)
    refuse_plugin(choice.kind, file, "belongs to another version of Horovod");
  return *ask();
}

}  // namespace hvd::mpi
