// The state of the stand-in driver: GPUs, contexts, streams, events, memory. One mutex guards all
// of it except the queues, so that threads of different streams share no lock.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/device/driver_api.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/fake_cuda/order.h"
#include "tests/fake_cuda/settings.h"

namespace fake {

using hvd::device::ContextHandle;
using hvd::device::EventHandle;
using hvd::device::Result;
using hvd::device::StreamHandle;

/// One recording of an event.
class Mark {
 public:
  void finish();
  void wait();
  bool done();
  std::chrono::steady_clock::time_point time();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::chrono::steady_clock::time_point time_;
};

/// A thread that runs tasks in order, each after a random delay. It runs until the process ends.
class Queue {
 public:
  explicit Queue(size_t number);
  void push(std::function<void()> task);
  void drain();
  bool empty();

 private:
  void main();
  void pass_time();

  const int64_t longest_delay_us_;
  const bool stuck_;  ///< FAKE_CUDA_STUCK was set when the stream was made: runs nothing
  std::minstd_rand dice_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool busy_ = false;
};

struct Block {
  enum class Kind { device, pinned, registered, imported } kind = Kind::device;
  uintptr_t begin = 0;
  size_t bytes = 0;
  int gpu = 0;
  AccessLog log{};
  bool is_private = false;  ///< see fake_cuda_keep_private()
  size_t mapped_bytes = 0;  ///< imported
};

/// The memory of a GPU: shared memory of a file, so that other processes can map it.
class Arena {
 public:
  explicit Arena(size_t bytes);
  /// Returns nullptr if there is no room.
  char* allocate(size_t bytes);
  void free(char* address);
  size_t total_bytes() const { return bytes_; }
  size_t free_bytes() const;
  int file() const { return file_; }
  size_t offset_of(const void* address) const;

 private:
  size_t bytes_;
  int file_;
  char* memory_;
  std::map<size_t, size_t> used_;  ///< end by begin
};

}  // namespace fake

namespace hvd::device {

struct ContextObject {
  int index = 0;  ///< of the GPU in this process
  int gpu = 0;    ///< in the machine
  int retained = 0;
  fake::Arena arena;
  std::atomic<int> collectives = 0;  ///< queued or running
  fake::StreamHandle legacy = nullptr;
  explicit ContextObject(int index_, int gpu_, size_t bytes)
      : index(index_), gpu(gpu_), arena(bytes) {}
};

struct StreamObject {
  ContextHandle context;
  size_t number;
  uint64_t queued = 0;
  fake::Clock clock{};
  int holds = 0;
  bool ignores_host = false;  ///< see fake_cuda_ignore_host()
  CaptureStatus capture = CaptureStatus::none;
  bool destroyed = false;
  fake::Queue queue;
  StreamObject(ContextHandle context_, size_t number_)
      : context(context_), number(number_), queue(number_) {}
};

struct EventObject {
  ContextHandle context;
  unsigned flags;
  std::shared_ptr<fake::Mark> mark{};  ///< nullptr: never recorded
  fake::Clock clock{};
  size_t stream = 0;  ///< of the last recording
  bool captured = false;
  bool destroyed = false;
  struct Shared* shared = nullptr;  ///< with kEventForOtherProcesses, or imported
  int shared_file = -1;
  bool imported = false;
};

}  // namespace hvd::device

namespace fake {

struct State {
  std::mutex mutex;
  std::atomic<pid_t> process = 0;  ///< that has called cuInit; 0: none
  std::vector<std::unique_ptr<hvd::device::ContextObject>> contexts;  ///< by index of the GPU
  std::map<uintptr_t, Block> blocks;                                  ///< by address
  std::vector<std::unique_ptr<hvd::device::StreamObject>> streams;    ///< never erased
  std::vector<std::unique_ptr<hvd::device::EventObject>> events;
  Clock host;                   ///< what any thread of the host has seen to be done
  bool keeps_accesses = false;  ///< also those that the host has seen to be done
  int captures = 0;             ///< in the mode `global`
};
State& state();

/// The context stack and the capture mode of this thread.
struct Thread {
  std::vector<ContextHandle> contexts;
  hvd::device::CaptureMode mode = hvd::device::CaptureMode::global;
  std::map<ContextHandle, StreamHandle> own_streams;
};
Thread& thread();

// ---- checks; all with the mutex held

/// The current context; aborts if there is none or another one than that of an object.
ContextHandle current_context();
void must_be_current(ContextHandle context, const char* of_what);
/// The stream that a handle means on this thread. Aborts if it was destroyed.
StreamHandle resolve(StreamHandle handle);
EventHandle checked(EventHandle event);
Block* block_of(const void* address);
StreamHandle new_stream(ContextHandle context);

/// Queues work after all checks.
void enqueue(StreamHandle stream, const char* what, std::span<const Access> accesses,
             std::function<void()> run);
void host_sees(const Clock& clock);
/// Aborts if a capture in the mode `global` would be invalidated by this call.
void not_during_capture();

/// Common begin of all exported functions. Returns the failure that a variable asks for, or that
/// this process has not called cuInit. A child of fork() gets that error from cuInit too, before
/// any mutex is locked: another thread of the parent may have held it.
std::optional<Result> begin(const char* function);
/// The same for facts, which are told before cuInit and in a child of fork() as well.
std::optional<Result> begin_fact(const char* function);

}  // namespace fake

/// The first statement of an exported function that needs no state. Holds no mutex.
#define FAKE_FACT(function)              \
  const fake::Call fake_call(#function); \
  if (const auto failure = fake::begin_fact(#function)) return *failure

/// `FAKE_CALL(cuInit);` is the first statement of the other exported functions. Holds the mutex.
#define FAKE_CALL(function)                                         \
  const fake::Call fake_call(#function);                            \
  if (const auto failure = fake::begin(#function)) return *failure; \
  const std::lock_guard fake_lock(fake::state().mutex)

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))
