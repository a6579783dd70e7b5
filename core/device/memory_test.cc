// Memory of GPUs and pinned memory on the stand-in, and memory and events between processes.
#include "core/device/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "core/device/testing.h"

namespace hvd::device {
namespace {

using test::error_of;
using test::Gpu;
using test::Variable;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class Memory : public test::StandIn {};

TEST_F(Memory, BytesGoToTheGpuAndBack) {
  const Gpu gpu(0);
  const Stream stream(gpu.context);
  const DeviceMemory memory(gpu.context, 1000);
  const PinnedMemory host(gpu.context, 1000);
  fill_async(test::driver(), memory.address(), 7, 1000, stream.handle());
  copy_async(test::driver(), host.address(), memory.address(), 1000, stream.handle());
  test::await([&] { return stream.idle(); });
  EXPECT_THAT(host.bytes(), Each(std::byte{7}));
}

TEST_F(Memory, ExistingMemoryCanBePinnedForAWhile) {
  const Gpu gpu(0);
  const Stream stream(gpu.context);
  const DeviceMemory memory(gpu.context, 64);
  std::vector<std::byte> segment(64, std::byte{1});
  const auto address = reinterpret_cast<DevicePointer>(segment.data());
  {
    const PinnedRange pinned(gpu.context, segment);
    copy_async(test::driver(), memory.address(), address, 64, stream.handle());
    test::await([&] { return stream.idle(); });
  }
  EXPECT_DEATH(copy_async(test::driver(), memory.address(), address, 64, stream.handle()),
               "neither device memory nor pinned");
}

TEST_F(Memory, TooLittleMemoryIsReportedWithWhatIsFree) {
  const Gpu gpu(1);
  const DeviceMemory some(gpu.context, 200 << 20);
  EXPECT_THAT(error_of([&] { const DeviceMemory more(gpu.context, 100 << 20); }),
              AllOf(HasSubstr("100 MiB of device memory cannot be allocated for GPU 1: 56 of 256 "
                              "MiB of the GPU are free"),
                    HasSubstr("HOROVOD_FUSION_THRESHOLD")));
}

TEST_F(Memory, APinThatFailsIsReportedWithTheLimit) {
  const Gpu gpu(0);
  const Variable fails("FAKE_CUDA_FAIL", "cuMemHostAlloc=2,cuMemHostRegister_v2=2");
  std::vector<std::byte> segment(4096);
  const char* const text = "of host memory cannot be pinned for the GPU, CUDA_ERROR_OUT_OF_MEMORY";
  EXPECT_THAT(error_of([&] { const PinnedMemory host(gpu.context, 4096); }), HasSubstr(text));
  EXPECT_THAT(error_of([&] { const PinnedRange host(gpu.context, segment); }), HasSubstr(text));
}

TEST_F(Memory, AGpuThatThisProcessDoesNotSeeIsRefused) {
  EXPECT_THAT(error_of([] { const Gpu gpu(4); }),
              AllOf(HasSubstr("GPU 4 does not exist in this process, which sees 4 GPUs (0 to 3)"),
                    HasSubstr("use GPU 0 in each instead of local_rank()")));
}

TEST_F(Memory, AnAddressTellsItsGpu) {
  const Gpu gpu(1);
  const DeviceMemory memory(gpu.context, 64);
  const PinnedMemory host(gpu.context, 64);
  EXPECT_TRUE(is_memory_of(gpu.context, memory.address() + 63));
  EXPECT_FALSE(is_memory_of(gpu.context, host.address()));
  EXPECT_FALSE(is_memory_of(gpu.context, reinterpret_cast<DevicePointer>(&gpu)));
  const PrimaryContext other(test::driver(), 0);
  EXPECT_FALSE(is_memory_of(other, memory.address()));
}

TEST_F(Memory, AFailureNamesTheCall) {
  const Gpu gpu(0);
  const Stream stream(gpu.context);
  const Variable fails("FAKE_CUDA_FAIL", "cuStreamQuery=719@2");
  EXPECT_TRUE(stream.idle());
  EXPECT_EQ(error_of([&] { stream.idle(); }),
            "cuStreamQuery: CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure");
}

/// What a process shows to the other one.
struct Shown {
  IpcHandle memory;
  IpcHandle event;
};

/// Fills memory and shows it together with an event after that. Waits for an answer.
void show(int socket) {
  const Gpu gpu(0);
  const Stream stream(gpu.context);
  const DeviceMemory before(gpu.context, 100), memory(gpu.context, 5000);
  Event filled(gpu.context, EventUse::other_processes);
  fill_async(test::driver(), memory.address(), 9, 5000, stream.handle());
  filled.record(stream.handle());
  const Shown shown{memory.share(), filled.share()};
  char answer = 0;
  HVD_ASSERT(::write(socket, &shown, sizeof(shown)) == sizeof(shown));
  HVD_ASSERT(::read(socket, &answer, 1) == 1);
  test::await([&] { return stream.idle(); });
}

/// Reads the memory of the other process after its event. Returns whether it was filled.
bool look(int socket) {
  Shown shown{};
  HVD_ASSERT(::read(socket, &shown, sizeof(shown)) == sizeof(shown));
  const Gpu gpu(1);
  const Stream stream(gpu.context);
  const PinnedMemory host(gpu.context, 5000);
  const ImportedMemory memory(gpu.context, shown.memory);
  const Event filled(gpu.context, shown.event);
  filled.delay(stream.handle());
  copy_async(test::driver(), host.address(), memory.address(), 5000, stream.handle());
  test::await([&] { return stream.idle(); });
  HVD_ASSERT(filled.done());
  HVD_ASSERT(::write(socket, "", 1) == 1);
  return std::ranges::all_of(host.bytes(), [](std::byte one) { return one == std::byte{9}; });
}

/// In a process that has not used the driver yet.
[[noreturn]] void share_between_processes() {
  int sockets[2];
  HVD_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
  const pid_t child = ::fork();
  ::close(sockets[child == 0 ? 1 : 0]);  // then a process that ends early ends the other as well
  if (child == 0) {
    show(sockets[0]);
    ::_exit(0);
  }
  const bool filled = look(sockets[1]);
  int status = 1;
  ::waitpid(child, &status, 0);
  ::_exit(filled && status == 0 ? 0 : 1);
}

TEST_F(Memory, MemoryAndEventsAreSharedBetweenProcesses) {
  EXPECT_EXIT(share_between_processes(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hvd::device
