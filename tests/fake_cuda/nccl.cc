// The stand-in for libnccl.so.2. Ranks are processes of one host, or threads of one process.
//
//   FAKE_NCCL_VERSION       what ncclGetVersion tells (22809)
//   FAKE_NCCL_NEEDS_DRIVER  the oldest driver with which communicators can be made (12000)
//   FAKE_NCCL_POLLS         polls until an operation of a non-blocking communicator ends (2)
//   FAKE_NCCL_BLIND=1       the loss of a rank is not reported by ncclCommGetAsyncError
//   FAKE_NCCL_FAIL          function=code[@n],... see settings.h
//   NCCL_MULTI_RANK_GPU_ENABLE=1, with version 2.30: ranks may share a GPU
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "core/kernel/kernel.h"
#include "tests/fake_cuda/nccl_comm.h"

using namespace hvd::device;
using fake::Kind;
using fake::Work;

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))
#define FAKE_CALL(function)                                               \
  const fake::Call fake_call(#function);                                  \
  if (const auto failure = fake::planned_failure("FAKE_NCCL", #function)) \
  return static_cast<NcclResult>(*failure)

namespace {

struct LastError {
  std::mutex mutex;
  std::string text;
};
LastError& last_error() {
  static auto* const one = new LastError;
  return *one;
}

int version() { return static_cast<int>(fake::number("FAKE_NCCL_VERSION", 22809)); }

/// The calls since ncclGroupStart on this thread.
struct Group {
  struct Call {
    CommHandle comm;
    StreamHandle stream;
    Work work;
  };
  int depth = 0;
  std::vector<Call> calls{};
};
thread_local Group group;
constexpr size_t kMostCalls = 2048;  ///< of a group, as the documentation of NCCL says
using Place = std::pair<CommHandle, StreamHandle>;

/// The value of a scalar of a type.
double value_of(const void* scalar, NcclType type) {
  float narrow = 0;
  double wide = 0;
  if (type == NcclType::float16 || type == NcclType::bfloat16) {
    const auto dtype = type == NcclType::float16 ? hvd::DType::float16 : hvd::DType::bfloat16;
    hvd::kernel::widen(dtype, &narrow, scalar, 1);
    return narrow;
  }
  if (type == NcclType::float32) {
    std::memcpy(&narrow, scalar, sizeof(narrow));
    return narrow;
  }
  if (type != NcclType::float64) fake::misuse("a scalar of this type is not simulated");
  std::memcpy(&wide, scalar, sizeof(wide));
  return wide;
}

/// NCCL rounds the factor to the type of the tensor.
double average_factor(NcclType type, int size) {
  if (type == NcclType::float64) return 1.0 / size;
  const float factor = 1.0f / static_cast<float>(size);
  if (type == NcclType::float32) return factor;
  if (type != NcclType::float16 && type != NcclType::bfloat16) return 1;  // divided at the end
  unsigned short rounded = 0;
  const auto dtype = type == NcclType::float16 ? hvd::DType::float16 : hvd::DType::bfloat16;
  hvd::kernel::narrow(dtype, &rounded, &factor, 1);
  return value_of(&rounded, type);
}

double factor_of(CommHandle comm, int op, NcclType type) {
  if (op == kNcclAvg) return average_factor(type, comm->segment.size());
  if (op < kNcclAvg) return 1;
  const auto found = comm->factors.find(op);
  if (found == comm->factors.end()) fake::misuse("there is no such reduction");
  return found->second;
}

NcclResult call(CommHandle comm, StreamHandle stream, Work work) {
  const fake::Entered entered(comm, false);
  work.factor = factor_of(comm, work.op, work.type);
  if (group.depth == 0) return fake::queue_works(comm, stream, {work});
  if (group.calls.size() == kMostCalls) {
    fake::set_last_error("a group has too many calls");
    return NcclResult::invalid_usage;
  }
  group.calls.push_back({comm, stream, work});
  return NcclResult::success;
}

}  // namespace

void fake::set_last_error(const std::string& text) {
  const std::lock_guard lock(last_error().mutex);
  last_error().text = text;
}

FAKE_EXPORT NcclResult ncclGetVersion(int* found) {
  FAKE_CALL(ncclGetVersion);
  *found = version();
  return NcclResult::success;
}

FAKE_EXPORT const char* ncclGetErrorString(NcclResult result) {
  constexpr const char* kTexts[] = {
      "no error",
      "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
      "internal error - please report this issue to the NCCL developers",
      "invalid argument (run with NCCL_DEBUG=WARN for details)",
      "invalid usage (run with NCCL_DEBUG=WARN for details)",
      "remote process exited or there was a network error",
      "NCCL operation in progress"};
  return kTexts[static_cast<int>(result)];
}

FAKE_EXPORT const char* ncclGetLastError(CommHandle) {
  const std::lock_guard lock(last_error().mutex);
  thread_local std::string copy;
  copy = last_error().text;
  return copy.c_str();
}

FAKE_EXPORT NcclResult ncclGetUniqueId(UniqueId* id) {
  FAKE_CALL(ncclGetUniqueId);
  std::random_device random;
  *id = {};
  std::snprintf(id->bytes, sizeof(id->bytes), "/fake_nccl_%08x%08x", random(), random());
  return NcclResult::success;
}

namespace {

/// The end of making a communicator.
NcclResult meet(CommHandle comm) {
  if (!comm->segment.all_joined()) return NcclResult::in_progress;
  const bool shares = version() >= 23000 && fake::number("NCCL_MULTI_RANK_GPU_ENABLE", 0) == 1;
  const std::string misfit = comm->segment.misfit(shares);
  if (misfit.empty()) return NcclResult::success;
  fake::set_last_error(misfit);
  return NcclResult::invalid_usage;
}

}  // namespace

FAKE_EXPORT NcclResult ncclCommInitRankConfig(CommHandle* comm, int size, UniqueId id, int rank,
                                              CommConfig* config) {
  FAKE_CALL(ncclCommInitRankConfig);
  int driver = 0;
  fake::cuda().driver_version(&driver);
  if (driver < fake::number("FAKE_NCCL_NEEDS_DRIVER", 12000)) {
    fake::set_last_error("CUDA driver version is insufficient for CUDA runtime version");
    return NcclResult::unhandled_cuda_error;
  }
  if (config->size != sizeof(CommConfig) || config->magic != 0xcafebeef || rank >= size)
    return NcclResult::invalid_argument;
  if (fake::cuda().current_gpu() < 0) fake::misuse("no context is current on this thread");
  *comm = new CommObject(id, rank, size, fake::cuda().current_gpu(), config->blocking != 0);
  fake::remember(*comm);
  (*comm)->segment.join(version(), (*comm)->gpu);
  return fake::start(*comm, [made = *comm] { return meet(made); });
}

FAKE_EXPORT NcclResult ncclCommGetAsyncError(CommHandle comm, NcclResult* state) {
  FAKE_CALL(ncclCommGetAsyncError);
  const fake::Entered entered(comm, true);
  *state = fake::poll(comm);
  return NcclResult::success;
}

FAKE_EXPORT NcclResult ncclCommFinalize(CommHandle comm) {
  FAKE_CALL(ncclCommFinalize);
  const fake::Entered entered(comm, false);
  comm->segment.own().leaving.store(1, std::memory_order_release);
  return fake::start(comm, [comm] {
    const bool ends = comm->segment.all_leaving() && comm->queued.load() == 0;
    return ends ? NcclResult::success : NcclResult::in_progress;
  });
}

/// Waits for the other ranks, for ever if one is lost.
FAKE_EXPORT NcclResult ncclCommDestroy(CommHandle comm) {
  FAKE_CALL(ncclCommDestroy);
  {
    const fake::Entered entered(comm, true);
    comm->segment.own().leaving.store(1, std::memory_order_release);
    while (!comm->segment.all_leaving() || comm->queued.load() > 0) fake::pause_briefly();
  }
  fake::forget(comm);
  delete comm;
  return NcclResult::success;
}

FAKE_EXPORT NcclResult ncclCommAbort(CommHandle comm) {
  FAKE_CALL(ncclCommAbort);
  if (!fake::is_known(comm)) fake::misuse("there is no such communicator");
  fake::end_works(comm);
  fake::forget(comm);
  delete comm;
  return NcclResult::success;
}

FAKE_EXPORT NcclResult ncclCommRevoke(CommHandle comm, int) {
  FAKE_CALL(ncclCommRevoke);
  if (!fake::is_known(comm)) fake::misuse("there is no such communicator");
  fake::end_works(comm);
  return NcclResult::success;
}

// ---- collectives

FAKE_EXPORT NcclResult ncclAllReduce(const void* in, void* out, size_t count, NcclType type,
                                     NcclReduceOp op, CommHandle comm, StreamHandle stream) {
  FAKE_CALL(ncclAllReduce);
  return call(comm, stream, {Kind::all_reduce, in, out, count, type, op});
}

FAKE_EXPORT NcclResult ncclAllGather(const void* in, void* out, size_t count, NcclType type,
                                     CommHandle comm, StreamHandle stream) {
  FAKE_CALL(ncclAllGather);
  return call(comm, stream, {Kind::all_gather, in, out, count, type});
}

FAKE_EXPORT NcclResult ncclReduceScatter(const void* in, void* out, size_t count, NcclType type,
                                         NcclReduceOp op, CommHandle comm, StreamHandle stream) {
  FAKE_CALL(ncclReduceScatter);
  return call(comm, stream, {Kind::reduce_scatter, in, out, count, type, op});
}

FAKE_EXPORT NcclResult ncclBroadcast(const void* in, void* out, size_t count, NcclType type,
                                     int root, CommHandle comm, StreamHandle stream) {
  FAKE_CALL(ncclBroadcast);
  return call(comm, stream, {Kind::broadcast, in, out, count, type, kNcclSum, 1, root});
}

FAKE_EXPORT NcclResult ncclReduce(const void* in, void* out, size_t count, NcclType type,
                                  NcclReduceOp op, int root, CommHandle comm, StreamHandle stream) {
  FAKE_CALL(ncclReduce);
  return call(comm, stream, {Kind::reduce, in, out, count, type, op, 1, root});
}

FAKE_EXPORT NcclResult ncclSend(const void* in, size_t count, NcclType type, int peer,
                                CommHandle comm, StreamHandle stream) {
  FAKE_CALL(ncclSend);
  return call(comm, stream, {Kind::send, in, nullptr, count, type, kNcclSum, 1, peer});
}

FAKE_EXPORT NcclResult ncclRecv(void* out, size_t count, NcclType type, int peer, CommHandle comm,
                                StreamHandle stream) {
  FAKE_CALL(ncclRecv);
  return call(comm, stream, {Kind::receive, nullptr, out, count, type, kNcclSum, 1, peer});
}

FAKE_EXPORT NcclResult ncclGroupStart() {
  FAKE_CALL(ncclGroupStart);
  ++group.depth;
  return NcclResult::success;
}

FAKE_EXPORT NcclResult ncclGroupEnd() {
  FAKE_CALL(ncclGroupEnd);
  if (group.depth == 0) fake::misuse("there was no ncclGroupStart on this thread");
  if (--group.depth > 0) return NcclResult::success;
  const auto calls = std::exchange(group.calls, {});
  std::vector<std::pair<Place, std::vector<Work>>> parts;  // in the order of the calls
  for (const auto& one : calls) {
    const Place place{one.comm, one.stream};
    auto part = std::ranges::find(parts, place, &decltype(parts)::value_type::first);
    if (part == parts.end()) part = parts.insert(parts.end(), {place, {}});
    part->second.push_back(one.work);
  }
  NcclResult result = NcclResult::success;
  for (const auto& [place, works] : parts) {
    const fake::Entered entered(place.first, false);
    const NcclResult one = fake::queue_works(place.first, place.second, works);
    if (one != NcclResult::success) result = one;
  }
  return result;
}

FAKE_EXPORT NcclResult ncclRedOpCreatePreMulSum(NcclReduceOp* op, void* scalar, NcclType type,
                                                ScalarResidence residence, CommHandle comm) {
  FAKE_CALL(ncclRedOpCreatePreMulSum);
  const fake::Entered entered(comm, false);
  if (residence != ScalarResidence::host_immediate)
    fake::misuse("a scalar in device memory is not simulated");
  *op = 512 + static_cast<int>(comm->factors.size());
  comm->factors[*op] = value_of(scalar, type);
  return NcclResult::success;
}

FAKE_EXPORT NcclResult ncclRedOpDestroy(NcclReduceOp op, CommHandle comm) {
  FAKE_CALL(ncclRedOpDestroy);
  const fake::Entered entered(comm, false);
  return comm->factors.contains(op) ? NcclResult::success : NcclResult::invalid_argument;
}

// ---- memory

FAKE_EXPORT NcclResult ncclMemAlloc(void** address, size_t bytes) {
  FAKE_CALL(ncclMemAlloc);
  DevicePointer found = 0;
  if (fake::cuda().allocate(&found, bytes) != kSuccess) return NcclResult::unhandled_cuda_error;
  *address = reinterpret_cast<void*>(found);
  return NcclResult::success;
}

FAKE_EXPORT NcclResult ncclMemFree(void* address) {
  FAKE_CALL(ncclMemFree);
  const Result freed = fake::cuda().free(reinterpret_cast<DevicePointer>(address));
  return freed == kSuccess ? NcclResult::success : NcclResult::unhandled_cuda_error;
}

FAKE_EXPORT NcclResult ncclCommRegister(CommHandle comm, void* buffer, size_t, void** handle) {
  FAKE_CALL(ncclCommRegister);
  const fake::Entered entered(comm, false);
  *handle = buffer;
  return NcclResult::success;
}

FAKE_EXPORT NcclResult ncclCommDeregister(CommHandle comm, void*) {
  FAKE_CALL(ncclCommDeregister);
  const fake::Entered entered(comm, false);
  return NcclResult::success;
}
