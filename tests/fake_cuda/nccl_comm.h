// A communicator of the stand-in NCCL, seen from one rank.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/fake_cuda/nccl_work.h"
#include "tests/fake_cuda/settings.h"

namespace hvd::device {

struct CommObject {
  CommObject(const UniqueId& id, int rank, int size, int gpu_, bool blocking_)
      : segment(id, rank, size), gpu(gpu_), blocking(blocking_) {}

  fake::Segment segment;
  const int gpu;
  const bool blocking;
  NcclResult state = NcclResult::in_progress;
  /// What is done when the state is no longer `in_progress`, and the polls until then.
  std::function<NcclResult()> pending{};
  int64_t polls_left = 0;
  StreamHandle held = nullptr;     ///< no work may be queued on it
  uint64_t collectives = 0;        ///< called so far
  std::atomic<int> queued{0};      ///< groups of works that have not ended
  std::atomic<bool> ended{false};  ///< aborted or revoked: works stop
  std::atomic<bool> entered{false};
  std::map<int, double> factors{};  ///< of the operations PreMulSum
};

}  // namespace hvd::device

namespace fake {

using hvd::device::CommHandle;
using hvd::device::NcclResult;
using hvd::device::StreamHandle;

/// The functions of the stand-in driver.
struct Cuda {
  decltype(&fake_cuda_enqueue) enqueue;
  decltype(&fake_cuda_hold) hold;
  decltype(&fake_cuda_collective) collective;
  decltype(&fake_cuda_gpu_of) gpu_of;
  decltype(&fake_cuda_current_gpu) current_gpu;
  hvd::device::Result (*driver_version)(int*);
  hvd::device::Result (*allocate)(hvd::device::DevicePointer*, size_t);
  hvd::device::Result (*free)(hvd::device::DevicePointer);
};
/// Loads the driver at the first call, as NCCL does.
const Cuda& cuda();

/// All communicators of this process that were not destroyed.
bool is_known(CommHandle comm);
void remember(CommHandle comm);
void forget(CommHandle comm);

/// Aborts unless this thread may use the communicator now: it exists, no other thread is in it, its
/// GPU is current, and (unless `always`) nothing is in progress. Marks it as used until the end.
class Entered {
 public:
  Entered(CommHandle comm, bool always);
  ~Entered();
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  CommHandle comm_;
};

/// Begins what may be in progress for a while: `pending` is done after some polls, or now in a
/// blocking communicator. `pending` returns in_progress to be called again.
NcclResult start(CommHandle comm, std::function<NcclResult()> pending);
/// Goes on with it. Returns the state.
NcclResult poll(CommHandle comm);

/// Queues works of one call or group.
NcclResult queue_works(CommHandle comm, StreamHandle stream, std::vector<Work> works);
/// Stops all works and waits until they have ended.
void end_works(CommHandle comm);

void set_last_error(const std::string& text);

}  // namespace fake
