#include "tests/fake_cuda/nccl_comm.h"

#include <dlfcn.h>

#include <set>

#ifndef FAKE_DRIVER
#define FAKE_DRIVER "libcuda.so.1"
#endif
/// The name of a function of the driver, which a macro may have changed.
#define FAKE_NAME(function) FAKE_TEXT(function)
#define FAKE_TEXT(name) #name

namespace fake {
namespace {

template <class Function>
void look_up(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr) misuse(std::string("the driver is not the stand-in: no ") + name);
}

Cuda load_cuda() {
  void* const library = ::dlopen(FAKE_DRIVER, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) misuse(FAKE_DRIVER " was not found");
  Cuda found{};
  look_up(library, "fake_cuda_enqueue", found.enqueue);
  look_up(library, "fake_cuda_hold", found.hold);
  look_up(library, "fake_cuda_collective", found.collective);
  look_up(library, "fake_cuda_gpu_of", found.gpu_of);
  look_up(library, "fake_cuda_current_gpu", found.current_gpu);
  look_up(library, FAKE_NAME(cuDriverGetVersion), found.driver_version);
  look_up(library, FAKE_NAME(cuMemAlloc_v2), found.allocate);
  look_up(library, FAKE_NAME(cuMemFree_v2), found.free);
  return found;
}

struct Known {
  std::mutex mutex;
  std::set<CommHandle> comms;
};
Known& known() {
  static auto* const all = new Known;
  return *all;
}

/// A group of works on its stream.
struct Task {
  CommHandle comm;
  std::vector<Work> works;
};

void run_task(void* argument) {
  const std::unique_ptr<Task> task(static_cast<Task*>(argument));
  const CommHandle comm = task->comm;
  run_works(comm->segment, task->works, [comm] { return comm->ended.load(); });
  cuda().collective(comm->gpu, -1);
  comm->queued.fetch_sub(1);
}

NcclResult enqueue(CommHandle comm, StreamHandle stream, const std::vector<Work>& works) {
  std::vector<Access> accesses;
  for (const Work& work : works) {
    const auto more = work.accesses(comm->segment.rank(), comm->segment.size());
    accesses.insert(accesses.end(), more.begin(), more.end());
  }
  comm->queued.fetch_add(1);
  cuda().collective(comm->gpu, +1);
  cuda().enqueue(stream, name_of(works.front().kind), accesses.data(), accesses.size(), run_task,
                 new Task{comm, works});
  return NcclResult::success;
}

void release(CommHandle comm) {
  if (comm->held != nullptr) cuda().hold(comm->held, -1);
  comm->held = nullptr;
}

}  // namespace

const Cuda& cuda() {
  static const Cuda loaded = load_cuda();
  return loaded;
}

bool is_known(CommHandle comm) {
  const std::lock_guard lock(known().mutex);
  return known().comms.contains(comm);
}
void remember(CommHandle comm) {
  const std::lock_guard lock(known().mutex);
  known().comms.insert(comm);
}
void forget(CommHandle comm) {
  const std::lock_guard lock(known().mutex);
  known().comms.erase(comm);
}

Entered::Entered(CommHandle comm, bool always) : comm_(comm) {
  if (!is_known(comm)) misuse("there is no such communicator (destroyed or aborted before?)");
  if (comm->entered.exchange(true)) misuse("another thread is in a function of this communicator");
  if (always) return;
  if (comm->state == NcclResult::in_progress)
    misuse("an operation of this communicator is still in progress: poll ncclCommGetAsyncError");
  if (cuda().current_gpu() != comm->gpu)
    misuse("wrong context: GPU " + std::to_string(cuda().current_gpu()) +
           " is current, the communicator is of GPU " + std::to_string(comm->gpu));
}

Entered::~Entered() {
  if (is_known(comm_)) comm_->entered.store(false);
}

NcclResult start(CommHandle comm, std::function<NcclResult()> pending) {
  comm->state = NcclResult::in_progress;
  comm->pending = std::move(pending);
  comm->polls_left = number("FAKE_NCCL_POLLS", 2);
  if (!comm->blocking) return NcclResult::in_progress;
  comm->polls_left = 0;
  while (poll(comm) == NcclResult::in_progress) pause_briefly();
  return comm->state;
}

NcclResult poll(CommHandle comm) {
  if (comm->state == NcclResult::in_progress && comm->polls_left-- <= 0) {
    release(comm);
    comm->state = comm->pending();
  }
  const bool blind = number("FAKE_NCCL_BLIND", 0) != 0;
  if (comm->state == NcclResult::success && !blind && comm->segment.peer_is_lost())
    return NcclResult::remote_error;
  return comm->state;
}

NcclResult queue_works(CommHandle comm, StreamHandle stream, std::vector<Work> works) {
  if (cuda().gpu_of(stream) != comm->gpu)
    misuse("wrong stream: it is of GPU " + std::to_string(cuda().gpu_of(stream)) +
           ", the communicator of GPU " + std::to_string(comm->gpu));
  if (comm->ended.load()) {
    set_last_error("the communicator was revoked");
    return NcclResult::invalid_usage;
  }
  for (Work& work : works) {
    if (work.collective()) work.number = ++comm->collectives;
  }
  if (!comm->blocking) {
    comm->held = stream;
    cuda().hold(stream, +1);
  }
  return start(comm, [=] { return enqueue(comm, stream, works); });
}

void end_works(CommHandle comm) {
  comm->ended.store(true);
  release(comm);
  if (comm->state == NcclResult::in_progress) comm->state = NcclResult::success;
  comm->segment.own().ended.store(1, std::memory_order_release);
  while (comm->queued.load() > 0) pause_briefly();
}

}  // namespace fake
