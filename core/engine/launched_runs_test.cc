// Runs that are launched on a device, in jobs with real threads: other batches proceed meanwhile,
// and a wakeup by another thread is enough to complete them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/engine/fake_device_testing.h"
#include "core/engine/host_testing.h"

namespace hvd {
namespace {

using test::FakeDevice;
using test::Host;
using test::submit;
using test::sum_of;
using ::testing::Each;

using Tensor = std::vector<float>;

/// A host whose ranks have a device each in addition to host memory.
test::HostOptions with_devices(const FakeDevice::Options& options) {
  test::HostOptions made;
  made.knobs.fusion_bytes = 0;  // one operation per batch
  made.make_backends = [options] {
    Backends backends = test::host_memory_only();
    backends.add(DeviceKind::cuda, std::make_unique<FakeDevice>(options));
    return backends;
  };
  return made;
}

FakeDevice& device_of(ProgressThread& thread) {
  return static_cast<FakeDevice&>(thread.backends().of(DeviceKind::cuda));
}

Request on_device(Request request) {
  request.signature.operation.device = DeviceKind::cuda;
  return request;
}

void await_queued(const FakeDevice& device, int tasks) {
  while (device.queued() < tasks) std::this_thread::yield();
}

TEST(LaunchedRuns, TheNextBatchIsLaunchedWhileTheDeviceIsBusy) {
  Host host(2, with_devices({.held = true}));
  host.run([&](int rank) {
    Tensor first(100, 1.0f), second(50, 2.0f);
    const auto a = submit(host.thread(rank), on_device(sum_of("a", first)));
    const auto b = submit(host.thread(rank), on_device(sum_of("b", second)));
    await_queued(device_of(host.thread(rank)), 2);
    EXPECT_FALSE(a->handle.done());
    device_of(host.thread(rank)).release();
    host.thread(rank).wait(b->handle);
    host.thread(rank).wait(a->handle);
    EXPECT_THAT(first, Each(2.0f));
    EXPECT_THAT(second, Each(4.0f));
  });
}

Request message(const std::string& name, Tensor& tensor) {
  Request request = on_device(sum_of(name, tensor));
  request.signature.operation.kind = OperationKind::message;
  request.signature.members = {0, 1};
  return request;
}

TEST(LaunchedRuns, MessagesWaitForADeviceThatIsFarBehind) {
  constexpr int kMessages = 50, kMost = Runner::kQueuedJobs + 1;
  Host host(2, with_devices({.held = true}));
  host.run([&](int rank) {
    FakeDevice& device = device_of(host.thread(rank));
    std::vector<Tensor> tensors(kMessages, Tensor(10, 1.0f));
    std::vector<std::shared_ptr<Completion>> messages;
    for (int i = 0; i < kMessages; ++i)
      messages.push_back(submit(host.thread(rank), message("m" + std::to_string(i), tensors[i])));
    await_queued(device, kMost);
    for (int i = 0; i < 10000; ++i) std::this_thread::yield();
    EXPECT_EQ(device.queued(), kMost);
    device.release();
    for (const auto& one : messages) host.thread(rank).wait(one->handle);
    EXPECT_EQ(device.queued(), kMessages);
  });
}

TEST(LaunchedRuns, HostMemoryIsReducedWhileTheDeviceIsBusy) {
  Host host(2, with_devices({.held = true}));
  host.run([&](int rank) {
    Tensor there(100, 1.0f), here(100, 1.0f);
    const auto launched = submit(host.thread(rank), on_device(sum_of("there", there)));
    await_queued(device_of(host.thread(rank)), 1);
    const auto moved = submit(host.thread(rank), sum_of("here", here));
    host.thread(rank).wait(moved->handle);
    EXPECT_THAT(here, Each(2.0f));
    EXPECT_FALSE(launched->handle.done());
    device_of(host.thread(rank)).release();
    host.thread(rank).wait(launched->handle);
    EXPECT_THAT(there, Each(2.0f));
  });
}

// Nothing else wakes the sleeping engine here: there is no deadline and no message from a peer.
TEST(LaunchedRuns, ASleepingEngineLooksAtTheDevice) {
  for (const int ranks : {1, 2}) {
    Host host(ranks, with_devices({.longest_delay = std::chrono::microseconds(400)}));
    host.run([&](int rank) {
      for (int round = 0; round < 300; ++round) {
        Tensor tensor(10, 1.0f);
        const auto done = submit(host.thread(rank), on_device(sum_of("x", tensor)));
        host.thread(rank).wait(done->handle);
        ASSERT_THAT(tensor, Each(static_cast<float>(ranks)));
      }
    });
  }
}

TEST(LaunchedRuns, WhatNobodyWaitsForEndsWithTheDevice) {
  Host host(1, with_devices({.longest_delay = std::chrono::milliseconds(30)}));
  for (int round = 0; round < 10; ++round) {
    Tensor tensor(10, 1.0f);
    std::atomic<bool> has_ended{false};
    Request request = on_device(sum_of("x", tensor));
    request.has_handle = false;
    request.ended = [&](const Outcome& outcome) {
      EXPECT_EQ(outcome.code, Code::ok);
      has_ended.store(true, std::memory_order_release);
    };
    submit(host.thread(0), std::move(request));
    while (!has_ended.load(std::memory_order_acquire)) std::this_thread::yield();
  }
}

Request change_of_sets(OperationKind kind, GroupNumber target) {
  Request request;
  request.name = "process_sets";
  request.signature.name = hash_name(request.name);
  request.signature.operation.kind = kind;
  request.signature.members = {0};
  request.signature.target = target;
  request.completion = std::make_shared<Completion>();
  return request;
}

TEST(LaunchedRuns, AProcessSetIsRemovedBehindWhatWasLaunchedOnIt) {
  Host host(1, with_devices({.held = true}));
  ProgressThread& thread = host.thread(0);
  const auto added = submit(thread, change_of_sets(OperationKind::add_process_set, 0));
  thread.wait(added->handle);
  const GroupNumber group = thread.process_sets().find(added->number)->group;
  Tensor tensor(10, 1.0f);
  Request request = on_device(sum_of("x", tensor));
  request.group = group;
  const auto launched = submit(thread, std::move(request));
  await_queued(device_of(thread), 1);
  const auto removed = submit(thread, change_of_sets(OperationKind::remove_process_set, group));
  for (int i = 0; i < 10000 && !removed->handle.done(); ++i) std::this_thread::yield();
  device_of(thread).release();
  thread.wait(removed->handle);
  EXPECT_TRUE(launched->handle.done());
  EXPECT_EQ(removed->handle.outcome().code, Code::ok);
}

TEST(LaunchedRuns, AShutdownWaitsForWhatWasLaunched) {
  Host host(2, with_devices({.held = true}));
  host.run([&](int rank) {
    Tensor tensor(10, 1.0f);
    const auto launched = submit(host.thread(rank), on_device(sum_of("x", tensor)));
    await_queued(device_of(host.thread(rank)), 1);
    std::thread ending([&] { host.thread(rank).shutdown(); });
    device_of(host.thread(rank)).release();
    ending.join();
    EXPECT_EQ(launched->handle.outcome().code, Code::ok);
    EXPECT_THAT(tensor, Each(2.0f));
  });
}

TEST(LaunchedRuns, ADeviceThatFailsEndsTheJobAndLeavesMemoryAlone) {
  Host host(1, with_devices({.held = true}));
  Tensor first(10, 1.0f), second(10, 1.0f);
  const auto a = submit(host.thread(0), on_device(sum_of("a", first)));
  const auto b = submit(host.thread(0), on_device(sum_of("b", second)));
  FakeDevice& device = device_of(host.thread(0));
  await_queued(device, 2);
  device.fail();
  host.thread(0).wait(a->handle);
  host.thread(0).wait(b->handle);
  for (const auto& completion : {a, b}) {
    EXPECT_NE(completion->handle.outcome().code, Code::ok);
    EXPECT_THAT(completion->handle.outcome().text, ::testing::HasSubstr("the device has failed"));
  }
  device.release();
  host.thread(0).shutdown();
  EXPECT_THAT(first, Each(1.0f));
  EXPECT_THAT(second, Each(1.0f));
}

}  // namespace
}  // namespace hvd
