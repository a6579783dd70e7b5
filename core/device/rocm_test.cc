// ROCm, as far as stand-ins go: the driver and RCCL under their names are found by the same tables
// and do the same. Whether a real libamdhip64.so behaves like that is not known. Each case runs in
// a process of its own, since a loaded library stays.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "core/device/gpu_info.h"
#include "core/device/nccl.h"
#include "core/device/testing.h"

namespace hvd::device {
namespace {

class Rocm : public test::StandIn {};

/// Loads the stand-ins from their folder, where the search finds them as loaded libraries.
std::unique_ptr<Driver> load_driver() {
  const std::string folder = std::string(std::getenv("LD_LIBRARY_PATH")) + "/rocm/";
  for (const char* name : {"libamdhip64.so", "librccl.so.1"}) {
    if (::dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr)
      std::fprintf(stderr, "%s\n", ::dlerror());
  }
  return Driver::load(DeviceKind::rocm);
}

/// Prints what `body` returns or throws, and ends.
[[noreturn]] void tell(const std::function<std::string(const Driver&)>& body) {
  std::string told;
  const std::string error = test::error_of([&] { told = body(*load_driver()); });
  std::fprintf(stderr, "%s%s\n", told.c_str(), error.c_str());
  ::_exit(0);
}

#define EXPECT_TOLD(body, regex) EXPECT_EXIT(tell body, ::testing::ExitedWithCode(0), regex)

TEST_F(Rocm, EveryFunctionOfTheDriverIsFound) {
  EXPECT_TOLD(([](const Driver& driver) {
                const GpuInfo info = gpu_info(driver, 1);
                return fmt::format("{} {} {} {}", driver.path(), driver.gpu_count(), info.bus_id,
                                   info.capability_major);
              }),
              "/rocm/libamdhip64.so 4 0000:02:00.0 0");
}

/// Copies 64 bytes to a GPU, within it and back, each on the stream behind an event.
std::string copies(const Driver& driver) {
  const PrimaryContext context(driver, 0);
  const ContextScope current(context);
  const Stream first(context), second(context);
  const DeviceMemory there(context, 64), elsewhere(context, 64);
  const PinnedMemory in(context, 64), out(context, 64);
  Event sent(context, EventUse::ordering), done(context, EventUse::ordering);
  in.bytes()[63] = std::byte{7};
  copy_async(driver, there.address(), in.address(), 64, first.handle());
  copy_async(driver, elsewhere.address(), there.address(), 64, first.handle());
  sent.record(first.handle());
  sent.delay(second.handle());
  copy_async(driver, out.address(), elsewhere.address(), 64, second.handle());
  done.record(second.handle());
  test::await([&] { return done.done() && first.idle(); });
  const bool is_there = is_memory_of(context, there.address());
  return fmt::format("copied {} on gpu {}", std::to_integer<int>(out.bytes()[63]), is_there);
}

TEST_F(Rocm, MemoryStreamsAndEventsWork) { EXPECT_TOLD((copies), "copied 7 on gpu true"); }

TEST_F(Rocm, RcclIsFoundByItsName) {
  EXPECT_TOLD(([](const Driver& driver) {
                const auto rccl = Nccl::load(driver, {});
                return fmt::format("{} {} revoke {}", rccl->path(), name_of(rccl->origin()),
                                   rccl->call().comm_revoke != nullptr);
              }),
              "/rocm/librccl.so.1 already loaded revoke true");
}

/// A communicator of one rank, and a sum on it.
std::string sums(const Driver& driver) {
  const auto rccl = Nccl::load(driver, {});
  const NcclTable& call = rccl->call();
  const PrimaryContext context(driver, 0);
  const ContextScope current(context);
  const Stream stream(context);
  const DeviceMemory memory(context, 64);
  UniqueId id{};
  rccl->check(call.get_unique_id(&id), nullptr, "ncclGetUniqueId");
  CommHandle comm = nullptr;
  CommConfig config;
  rccl->check(call.comm_init_rank_config(&comm, 1, id, 0, &config), nullptr, "init");
  fill_async(driver, memory.address(), 1, 64, stream.handle());
  void* const data = test::pointer(memory.address());
  const NcclResult result =
      call.all_reduce(data, data, 64, NcclType::uint8, kNcclSum, comm, stream.handle());
  rccl->check(result, comm, "ncclAllReduce");
  test::await([&] { return stream.idle(); });
  call.comm_abort(comm);
  return fmt::format("sum {}", static_cast<int>(static_cast<const char*>(data)[63]));
}

TEST_F(Rocm, RcclReducesOnAStreamOfTheDriver) { EXPECT_TOLD((sums), "sum 1"); }

}  // namespace
}  // namespace hvd::device
