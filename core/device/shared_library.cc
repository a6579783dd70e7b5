#include "core/device/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <mutex>
#include <utility>

namespace hvd::device {
namespace {

std::string real_path(const char* name) {
  std::error_code none;
  const auto path = std::filesystem::weakly_canonical(name, none);
  return none ? name : path.string();
}

std::string file_of(void* handle) {
  const link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "";
  return real_path(map->l_name);
}

struct Wanted {
  const std::string& prefix;
  std::vector<std::string> files{};
};

int add_if_wanted(dl_phdr_info* info, size_t, void* data) {
  auto& wanted = *static_cast<Wanted*>(data);
  const std::string file = std::filesystem::path(info->dlpi_name).filename();
  if (file.starts_with(wanted.prefix)) wanted.files.push_back(real_path(info->dlpi_name));
  return 0;
}

}  // namespace

const char* name_of(Origin origin) {
  switch (origin) {
    case Origin::knob:
      return "knob";
    case Origin::loaded:
      return "already loaded";
    case Origin::python:
      return "Python package";
    case Origin::system:
      break;
  }
  return "system";
}

SharedLibrary::SharedLibrary(void* handle, Origin origin)
    : handle_(handle), path_(file_of(handle)), origin_(origin) {}

void* SharedLibrary::find(const char* symbol) const { return ::dlsym(handle_, symbol); }

LibrarySearch LibrarySearch::first_of(const std::vector<Candidate>& candidates) {
  // The name of a library is read after dlopen, without the dynamic loader's lock.
  static std::mutex searching;
  const std::lock_guard alone(searching);
  LibrarySearch search;
  for (const Candidate& candidate : candidates) {
    const bool only_if_loaded = candidate.origin == Origin::loaded;
    const int flags = RTLD_NOW | RTLD_LOCAL | (only_if_loaded ? RTLD_NOLOAD : 0);
    if (void* const handle = ::dlopen(candidate.name.c_str(), flags)) {
      search.library = SharedLibrary(handle, candidate.origin);
      return search;
    }
    const char* const reason = ::dlerror();
    if (!only_if_loaded) search.reasons.emplace_back(reason ? reason : candidate.name);
  }
  return search;
}

std::vector<std::string> loaded_files(const std::string& prefix) {
  Wanted wanted{prefix};
  ::dl_iterate_phdr(add_if_wanted, &wanted);
  return wanted.files;
}

}  // namespace hvd::device
