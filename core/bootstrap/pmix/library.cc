#include "core/bootstrap/pmix/library.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <sys/types.h>

#include <algorithm>
#include <fstream>

#include "core/base/error.h"
#include "core/bootstrap/ancestors.h"
#include "core/bootstrap/variables.h"

namespace hvd::pmix {
namespace {

constexpr const char* kName = "libpmix.so.2";

/// The path of the libpmix that a process has loaded; empty if none.
std::string loaded_by(pid_t process) {
  std::ifstream maps(fmt::format("/proc/{}/maps", process));
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path != std::string::npos && line.find("/libpmix.so", path) != std::string::npos)
      return line.substr(path);
  }
  return "";
}

template <class Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* handle, Library& library) {
  return find(handle, "PMIx_Init", library.init) && find(handle, "PMIx_Put", library.put) &&
         find(handle, "PMIx_Commit", library.commit) &&
         find(handle, "PMIx_Fence_nb", library.fence) && find(handle, "PMIx_Get_nb", library.get) &&
         find(handle, "PMIx_Publish_nb", library.publish) &&
         find(handle, "PMIx_Lookup_nb", library.look_up) &&
         find(handle, "PMIx_Finalize", library.finalize) &&
         find(handle, "PMIx_Error_string", library.text_of);
}

}  // namespace

std::vector<std::string> library_paths(const Environment& environment) {
  std::vector<std::string> paths;
  const auto add = [&](const std::string& path) {
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
  };
  for (const pid_t process : ancestors()) {
    if (const std::string path = loaded_by(process); !path.empty()) add(path);
  }
  if (const auto prefix = variable(environment, "PMIX_PREFIX")) {
    add(*prefix + "/lib/openmpi/" + kName);
    add(*prefix + "/lib/" + kName);
  }
  if (const auto folder = variable(environment, "OMPI_LIBDIR_LOC"))
    add(*folder + "/openmpi/" + kName);
  add(kName);
  return paths;
}

Library load_library(const std::vector<std::string>& paths) {
  std::vector<std::string> reasons;
  for (const std::string& path : paths) {
    Library library{};
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr && find_all(handle, library)) {
      library.path = path;
      return library;
    }
    reasons.push_back(handle == nullptr ? ::dlerror() : path + ": functions are missing");
  }
  fail(Code::invalid_argument,
       fmt::format("the launcher's library libpmix, by which ranks on several hosts find each "
                   "other, cannot be loaded ({}); install it (Debian: libpmix2), or set for each "
                   "rank HOROVOD_RANK, HOROVOD_SIZE, "
                   "HOROVOD_GLOO_RENDEZVOUS_ADDR, HOROVOD_GLOO_RENDEZVOUS_PORT and "
                   "HOROVOD_SECRET_FILE",
                   fmt::join(reasons, "; ")));
}

}  // namespace hvd::pmix
