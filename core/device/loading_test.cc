// When and where libraries are loaded, and what is said if one does not fit. Each case runs in a
// process of its own, since a loaded library stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <thread>

#include "core/device/driver_symbols.h"
#include "core/device/nccl.h"
#include "core/device/nccl_symbols.h"
#include "core/device/testing.h"

namespace hvd::device {
namespace {

using std::filesystem::path;
using test::Variable;

/// Files of a library in a folder that is removed at the end.
class Copies {
 public:
  Copies() : folder_(path(::testing::TempDir()) / ("nccl-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~Copies() {
    std::error_code none;
    std::filesystem::remove_all(folder_, none);
  }
  /// The stand-in for NCCL, with another name of the folder.
  std::string nccl(const std::string& name) const {
    const path copy = folder_ / name / "libnccl.so.2";
    std::filesystem::create_directories(copy.parent_path());
    std::filesystem::copy_file(path(std::getenv("LD_LIBRARY_PATH")) / "libnccl.so.2", copy);
    return copy;
  }

 private:
  path folder_;
};

class Loading : public test::StandIn {};

/// Prints what `body` returns or throws, and ends.
[[noreturn]] void tell(const std::function<std::string()>& body) {
  std::string told;
  const std::string error = test::error_of([&] { told = body(); });
  std::fprintf(stderr, "%s%s\n", told.c_str(), error.c_str());
  ::_exit(0);
}

#define EXPECT_TOLD(body, regex) EXPECT_EXIT(tell body, ::testing::ExitedWithCode(0), regex)

std::string driver_error(const char* variable, const char* value) {
  const Variable set(variable, value);
  test::driver();
  return "";
}

std::string found_nccl(const NcclPlaces& places) {
  const auto nccl = Nccl::load(test::driver(), places);
  return std::string(name_of(nccl->origin())) + " " + nccl->path();
}

TEST_F(Loading, NothingIsLoadedBeforeTheFirstUse) {
  EXPECT_TOLD(([] {
                const bool early =
                    !loaded_files("libcuda").empty() || !loaded_files("libnccl").empty();
                test::driver();
                const bool nccl = !loaded_files("libnccl").empty();
                const bool driver = !loaded_files("libcuda").empty();
                return fmt::format("early {} driver {} nccl {}", early, driver, nccl);
              }),
              "early false driver true nccl false");
}

TEST_F(Loading, EveryFunctionOfTheDriverIsFound) {
  const DriverTable& call = test::driver().call();
  const auto check = [&](const auto& symbol) {
    const bool of_cuda = symbol.cuda[0][0] != '\0';
    EXPECT_EQ(call.*symbol.field != nullptr, of_cuda) << symbol.cuda[0] << symbol.rocm;
  };
  std::apply([&](const auto&... symbol) { (check(symbol), ...); }, kDriverSymbols);
  EXPECT_EQ(test::driver().version(), 12090);
  EXPECT_EQ(test::driver().gpu_count(), 4);
}

TEST_F(Loading, ADriverThatIsNotThereIsReportedWithTheRemedy) {
  EXPECT_THAT(test::error_of([] { Driver::load(DeviceKind::rocm); }),
              ::testing::MatchesRegex("this process has a tensor in ROCm memory, but the library "
                                      "of the driver cannot be loaded .libamdhip64.so: .*install "
                                      "the driver; in a container, give it the GPUs .docker run "
                                      "--device=/dev/kfd.*"));
}

TEST_F(Loading, WhatCuInitSaysIsReportedWithTheRemedy) {
  const auto fails = [](const char* code) { return driver_error("FAKE_CUDA_FAIL", code); };
  EXPECT_TOLD(
      ([&] { return fails("cuInit=803"); }),
      "cannot be initialized, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH .803.: .* .the driver "
      "supports CUDA 12.9.: the library and the kernel module of the driver have different");
  EXPECT_TOLD(([&] { return fails("cuInit=34"); }), "the stub library of the CUDA toolkit");
  EXPECT_TOLD(([&] { return fails("cuInit=999"); }), "unknown error .999.: no text .*nvidia-smi");
  EXPECT_TOLD(([] { return driver_error("FAKE_CUDA_DEVICES", "0"); }),
              "CUDA_ERROR_NO_DEVICE .100.: .* no GPU is visible to this process: check nvidia-smi, "
              "CUDA_VISIBLE_DEVICES");
  EXPECT_TOLD(([] { return driver_error("CUDA_VISIBLE_DEVICES", "7"); }),
              "no GPU is visible to this process");
}

TEST_F(Loading, AChildOfForkMayNotUseTheDriver) {
  EXPECT_TOLD(([] {
                test::driver();
                const pid_t child = ::fork();
                if (child == 0)
                  tell([] {
                    const PrimaryContext context(test::driver(), 0);
                    return "";
                  });
                ::waitpid(child, nullptr, 0);
                return "parent";
              }),
              "GPU tensors cannot be used in this process: it was forked from process [0-9]+ "
              "after that had used a GPU.*parent");
}

/// Allocates memory of a GPU again and again. The stand-in fills it with its lock held.
void keep_allocating(const std::stop_token& stop, std::atomic<bool>& begun) {
  const test::Gpu gpu(0);
  while (!stop.stop_requested()) {
    const DeviceMemory memory(gpu.context, 1 << 20);
    begun.store(true);
  }
}

/// Forks while another thread is in the driver. Returns how many children were told why they
/// cannot use it; the others hang until the alarm.
int refused_children(int count) {
  std::atomic<bool> begun{false};
  const std::jthread other(keep_allocating, std::ref(begun));
  test::await([&] { return begun.load(); });
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);
      const std::string error = test::error_of([] { Driver::load(DeviceKind::cuda); });
      ::_exit(error.find("CUDA_ERROR_NOT_INITIALIZED (3)") != std::string::npos ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    refused += status == 0 ? 1 : 0;
  }
  return refused;
}

TEST_F(Loading, AChildOfForkDoesNotWaitForThreadsOfItsParent) {
  EXPECT_TOLD(([] {
                test::driver();
                return fmt::format("refused {}", refused_children(10));
              }),
              "refused 10");
}

/// How many of some threads that search for `file` at the same time find it.
int found_at_once(const std::string& file) {
  constexpr int threads = 8;
  std::atomic<int> arrived = 0, found = 0;
  std::vector<std::thread> searches;
  for (int i = 0; i < threads; ++i)
    searches.emplace_back([&] {
      ++arrived;
      while (arrived < threads) std::this_thread::yield();
      const auto search = LibrarySearch::first_of({{Origin::knob, file}});
      found += search.library && search.library->path() == file ? 1 : 0;
    });
  for (std::thread& search : searches) search.join();
  return found;
}

TEST_F(Loading, ThreadsMaySearchForTheSameLibraryAtOnce) {
  EXPECT_TOLD(([] {
                const Copies copies;
                return fmt::format("found {}", found_at_once(copies.nccl("any")));
              }),
              "found 8");
}

TEST_F(Loading, NcclIsTakenFromTheKnobFirst) {
  EXPECT_TOLD(([] {
                const Copies copies;
                const std::string loaded = copies.nccl("loaded"), knob = copies.nccl("knob");
                ::dlopen(loaded.c_str(), RTLD_NOW | RTLD_LOCAL);
                return found_nccl({knob, copies.nccl("python")});
              }),
              "knob .*/knob/libnccl.so.2");
}

TEST_F(Loading, NcclThatIsLoadedIsTakenNext) {
  EXPECT_TOLD(([] {
                const Copies copies;
                ::dlopen(copies.nccl("loaded").c_str(), RTLD_NOW | RTLD_LOCAL);
                return found_nccl({"", copies.nccl("python")});
              }),
              "already loaded .*/loaded/libnccl.so.2");
}

TEST_F(Loading, NcclOfPythonIsTakenNextAndThenThatOfTheSystem) {
  EXPECT_TOLD(([] {
                const Copies copies;
                return found_nccl({"", copies.nccl("python")});
              }),
              "Python package .*/python/libnccl.so.2");
  EXPECT_TOLD(([] {
                return found_nccl({"", "/nowhere/libnccl.so.2"});
              }),
              "system .*/fake_cuda/libnccl.so.2");
}

TEST_F(Loading, ASecondNcclIsReported) {
  EXPECT_TOLD(([] {
                const Copies copies;
                ::dlopen(copies.nccl("loaded").c_str(), RTLD_NOW | RTLD_LOCAL);
                return found_nccl({copies.nccl("knob"), ""});
              }),
              "nccl uses=.*/knob/libnccl.so.2 also_loaded=.*/loaded/libnccl.so.2: this process");
}

TEST_F(Loading, NcclThatIsNotThereIsReportedWithTheRemedy) {
  EXPECT_TOLD(([] {
                test::driver();
                const Copies copies;
                return found_nccl({"/nowhere/libnccl.so.2", copies.nccl("python")});
              }),
              "HOROVOD_NCCL_LIBRARY=/nowhere/libnccl.so.2 cannot be loaded .*correct the path");
}

TEST_F(Loading, NcclThatIsTooOldIsRefused) {
  EXPECT_TOLD(([] {
                const Variable version("FAKE_NCCL_VERSION", "21401");
                return found_nccl({});
              }),
              "NCCL 2.14.1 .*libnccl.so.2, system. is too old: 2.16 or later is needed");
}

TEST_F(Loading, ALibraryThatIsNotNcclIsRefused) {
  EXPECT_TOLD(([] {
                test::driver();
                const path cuda = path(std::getenv("LD_LIBRARY_PATH")) / "libcuda.so.1";
                return found_nccl({cuda, ""});
              }),
              "NCCL 0.0.0 .*libcuda.so.1, knob. lacks ncclGetVersion: it is not a complete");
}

TEST_F(Loading, FunctionsThatAreNewerThanTheLibraryAreNotUsed) {
  const auto revoke_of = [](const char* version) {
    return [version] {
      const Variable set("FAKE_NCCL_VERSION", version);
      const auto nccl = Nccl::load(test::driver(), {});
      return fmt::format("revoke {} memory {}", nccl->call().comm_revoke != nullptr,
                         nccl->call().memory_allocate != nullptr);
    };
  };
  EXPECT_TOLD((revoke_of("21605")), "revoke false memory false");
  EXPECT_TOLD((revoke_of("22705")), "revoke false memory true");
  EXPECT_TOLD((revoke_of("22809")), "revoke true memory true");
}

}  // namespace
}  // namespace hvd::device
