// For tests: the stand-in driver in tests/fake_cuda, a GPU on it, and a framework that queues work
// on a stream of its own.
#pragma once

#include <dlfcn.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/device/copy_kernels.h"
#include "core/device/memory.h"
#include "core/device/stream.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace hvd::device::test {

/// A function of the stand-in that is not in the table of the driver.
template <class Function>
Function* stand_in(const char* name) {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
  HVD_ASSERT(library != nullptr);
  void* const found = ::dlsym(library, name);
  HVD_ASSERT(found != nullptr);
  return reinterpret_cast<Function*>(found);
}

/// Sets a variable until its end.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

/// The text of the Error that `body` throws; empty if it throws none.
inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline Driver& driver() {
  static Driver* const loaded = Driver::load(DeviceKind::cuda).release();
  return *loaded;
}

inline void await(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::yield();
}

/// The context of a GPU, current on this thread.
struct Gpu {
  explicit Gpu(int index) : context(driver(), index), scope(context) {}
  PrimaryContext context;
  ContextScope scope;
};

using Accesses = std::vector<fake::Access>;

/// Queues work on streams as the kernels of a framework would be.
class Framework {
 public:
  explicit Framework(const PrimaryContext& context) : stream_(context) {}

  StreamHandle stream() const { return stream_.handle(); }
  /// `work` accesses exactly `accesses`.
  void queue(const char* what, const Accesses& accesses, std::function<void()> work) const {
    auto* const kept = new std::function<void()>(std::move(work));
    const auto run = [](void* argument) {
      const std::unique_ptr<std::function<void()>> task(
          static_cast<std::function<void()>*>(argument));
      (*task)();
    };
    static const auto enqueue = stand_in<decltype(fake_cuda_enqueue)>("fake_cuda_enqueue");
    enqueue(stream(), what, accesses.data(), accesses.size(), run, kept);
  }
  /// Blocks until all work on the stream is done.
  void finish() const {
    static const auto synchronize = stand_in<Result(StreamHandle)>("cuStreamSynchronize");
    HVD_ASSERT(synchronize(stream()) == kSuccess);
  }

 private:
  Stream stream_;
};

/// Tests that expect an abort start a new process for it, since streams are threads.
class StandIn : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

inline void* pointer(DevicePointer address) { return reinterpret_cast<void*>(address); }

}  // namespace hvd::device::test
