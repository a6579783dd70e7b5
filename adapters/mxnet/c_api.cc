#include "adapters/mxnet/c_api.h"

#include <dlfcn.h>
#include <link.h>

#include <string_view>

namespace hvd::mxnet {
namespace {

/// Returns the path of the loaded library, "" if there is none.
std::string library_path() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        const std::string_view name = info->dlpi_name;
        if (!name.ends_with("/libmxnet.so")) return 0;
        *static_cast<std::string*>(found) = name;
        return 1;
      },
      &path);
  return path;
}

/// std::__1::cout, which exists only in libraries linked with libc++.
constexpr char kCoutOfLibcxx[] = "_ZNSt3__14coutE";
constexpr char kReorder[] = "_ZN5mxnet7NDArray5Chunk15Reorder2DefaultEv";
constexpr int kOldest = 10900, kTooNew = 30000;  ///< 1.9.0, 3.0.0

class Loader {
 public:
  Loader() {
    const std::string path = library_path();
    library_ = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOLOAD | RTLD_NOW);
    if (library_ == nullptr) {
      problem_ = "there is no libmxnet.so in this process";
      return;
    }
    take_all();
    if (missing_ != nullptr)
      problem_ = path + " has no function " + missing_;
    else
      problem_ = misfit();
  }

  const Api& api() const { return api_; }
  const std::string& problem() const { return problem_; }
  int major() const { return version_ / 10000; }

 private:
  template <class Function>
  void take(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }

  /// Two functions of version 2 have other names than in version 1.
  template <class Function>
  void take(const char* name1, const char* name2, Function*& function) {
    take(dlsym(library_, name1) != nullptr ? name1 : name2, function);
  }

  void take_all() {
    take("MXGetLastError", api_.last_error);
    take("MXGetVersion", api_.version);
    take("MXNDArrayCreateEx64", "MXNDArrayCreate64", api_.create_array);
    take("MXNDArrayFree", api_.free_array);
    take("MXShallowCopyNDArray", api_.share_array);
    take("MXNDArrayGetShapeEx64", "MXNDArrayGetShape64", api_.shape);
    take("MXNDArrayGetDType", api_.dtype);
    take("MXNDArrayGetContext", api_.context);
    take("MXNDArrayGetData", api_.data);
    take("MXEnginePushAsyncND", api_.push);
    api_.reorder = reinterpret_cast<void (*)(Chunk*)>(dlsym(library_, kReorder));
  }

  std::string misfit() {
    if (api_.version(&version_) != 0 || version_ < kOldest || version_ >= kTooNew)
      return "its version is " + std::to_string(version_);
    if (dlsym(library_, kCoutOfLibcxx) != nullptr)
      return "it is built with libc++, whose exceptions have a different layout";
    return knows_layout() ? "" : "its arrays have a different layout";
  }

  /// Returns whether an array begins with a pointer to its chunk, and a chunk with the address of
  /// its memory.
  bool knows_layout() const {
    const int64_t shape[] = {2};
    Array* array = nullptr;
    void* data = nullptr;
    if (api_.create_array(shape, 1, kCpu, 0, 0, kFloat32, &array) != 0) return false;
    const bool known =
        api_.data(array, &data) == 0 && *reinterpret_cast<void* const*>(chunk_of(array)) == data;
    api_.free_array(array);
    return known;
  }

  void* library_ = nullptr;
  Api api_{};
  const char* missing_ = nullptr;  ///< the first
  int version_ = 0;
  std::string problem_;
};

// Never destroyed: operations may run until the end of the process.
const Loader& loader() {
  static const Loader& instance = *new Loader;
  return instance;
}

}  // namespace

const std::string& api_problem() { return loader().problem(); }
const Api& api() { return loader().api(); }
int api_major() { return loader().major(); }

}  // namespace hvd::mxnet
