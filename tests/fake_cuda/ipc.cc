// The stand-in for libcuda.so.1: memory and events of other processes. A handle names a process and
// one of its files, which /proc gives to others.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "tests/fake_cuda/shared_event.h"

namespace hvd::device {

struct Shared {
  std::atomic<uint64_t> begun;
  std::atomic<uint64_t> finished;  // release by a stream, acquire by those that wait
};

}  // namespace hvd::device

using namespace hvd::device;
using fake::state;

namespace fake {
namespace {

constexpr uint64_t kMemoryMagic = 0x6d656d6f7279, kEventMagic = 0x6576656e74;

struct Named {
  uint64_t magic;
  pid_t process;
  int file;
  size_t offset;
  size_t bytes;
  int gpu;
};
static_assert(sizeof(Named) <= sizeof(IpcHandle));

IpcHandle handle_of(const Named& named) {
  IpcHandle handle{};
  std::memcpy(handle.bytes, &named, sizeof(named));
  return handle;
}

/// Maps `bytes` from `offset`, a multiple of the page size. nullptr: there is no such file.
void* map_of(const Named& named, size_t offset, size_t bytes) {
  const std::string path =
      "/proc/" + std::to_string(named.process) + "/fd/" + std::to_string(named.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(offset));
  ::close(file);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

void make_shared_part(EventHandle event) {
  event->shared_file = ::memfd_create("fake_cuda_event", MFD_CLOEXEC);
  void* memory = MAP_FAILED;
  if (event->shared_file >= 0 && ::ftruncate(event->shared_file, sizeof(Shared)) == 0)
    memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, event->shared_file, 0);
  if (memory == MAP_FAILED) misuse("no memory for an event");
  event->shared = static_cast<Shared*>(memory);
}

void begin_shared_record(EventHandle event, StreamHandle stream) {
  const bool pending = event->mark != nullptr && !event->mark->done();
  if (pending && event->stream != stream->number)
    misuse("the event is still pending on another stream, and other processes may wait for it");
  event->shared->begun.fetch_add(1, std::memory_order_release);
}

uint64_t shared_number(EventHandle event) {
  return event->shared == nullptr ? 0 : event->shared->begun.load(std::memory_order_acquire);
}

void finish_shared_record(Shared* shared, uint64_t number) {
  if (shared != nullptr) shared->finished.store(number, std::memory_order_release);
}

bool shared_done(EventHandle event) {
  return event->shared->finished.load(std::memory_order_acquire) >= shared_number(event);
}

void enqueue_shared_wait(StreamHandle stream, EventHandle event) {
  if (!event->imported) return;
  enqueue(stream, "cuStreamWaitEvent", {}, [shared = event->shared, number = shared_number(event)] {
    while (shared->finished.load(std::memory_order_acquire) < number)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  });
}

}  // namespace fake

FAKE_EXPORT Result cuIpcGetMemHandle(IpcHandle* handle, DevicePointer address) {
  FAKE_CALL(cuIpcGetMemHandle);
  const fake::Block* const block = fake::block_of(reinterpret_cast<void*>(address));
  if (block == nullptr || block->kind != fake::Block::Kind::device || block->begin != address)
    return kInvalidValue;
  if (block->is_private) return kInvalidValue;
  const fake::Arena& arena = fake::current_context()->arena;
  *handle = fake::handle_of({fake::kMemoryMagic, ::getpid(), arena.file(),
                             arena.offset_of(reinterpret_cast<void*>(address)), block->bytes,
                             fake::current_context()->gpu});
  return kSuccess;
}

FAKE_EXPORT void fake_cuda_keep_private(DevicePointer address) {
  const std::lock_guard lock(state().mutex);
  fake::block_of(reinterpret_cast<void*>(address))->is_private = true;
}

FAKE_EXPORT Result cuIpcOpenMemHandle_v2(DevicePointer* address, IpcHandle handle, unsigned flags) {
  FAKE_CALL(cuIpcOpenMemHandle_v2);
  fake::Named named{};
  std::memcpy(&named, handle.bytes, sizeof(named));
  if (named.magic != fake::kMemoryMagic || flags != kPeerAccessWhenNeeded) return kInvalidValue;
  if (named.process == ::getpid()) return kInvalidContext;
  const bool is_mig = fake::number("FAKE_CUDA_MIG", 0) != 0;
  if (is_mig && named.gpu != fake::current_context()->gpu) return kPeerAccessUnsupported;
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = named.offset / page * page, skipped = named.offset - begin;
  void* const memory = fake::map_of(named, begin, skipped + named.bytes);
  if (memory == nullptr) return kInvalidValue;
  *address = reinterpret_cast<DevicePointer>(memory) + skipped;
  state().blocks[*address] = {.kind = fake::Block::Kind::imported,
                              .begin = *address,
                              .bytes = named.bytes,
                              .gpu = fake::current_context()->gpu,
                              .mapped_bytes = skipped + named.bytes};
  return kSuccess;
}

FAKE_EXPORT Result cuIpcCloseMemHandle(DevicePointer address) {
  FAKE_CALL(cuIpcCloseMemHandle);
  const auto found = state().blocks.find(address);
  if (found == state().blocks.end() || found->second.kind != fake::Block::Kind::imported)
    return kInvalidValue;
  if (const auto* const user = found->second.log.first_unknown_to(state().host))
    fake::misuse(std::string("the host does not know that ") + user->what + " has ended");
  const size_t mapped = found->second.mapped_bytes, skipped = mapped - found->second.bytes;
  ::munmap(reinterpret_cast<void*>(address - skipped), mapped);
  state().blocks.erase(found);
  return kSuccess;
}

FAKE_EXPORT Result cuIpcGetEventHandle(IpcHandle* handle, EventHandle event) {
  FAKE_CALL(cuIpcGetEventHandle);
  if (fake::checked(event)->shared == nullptr || event->imported) return kInvalidValue;
  *handle =
      fake::handle_of({fake::kEventMagic, ::getpid(), event->shared_file, 0, sizeof(Shared), 0});
  return kSuccess;
}

FAKE_EXPORT Result cuIpcOpenEventHandle(EventHandle* event, IpcHandle handle) {
  FAKE_CALL(cuIpcOpenEventHandle);
  fake::Named named{};
  std::memcpy(&named, handle.bytes, sizeof(named));
  if (named.magic != fake::kEventMagic) return kInvalidValue;
  if (named.process == ::getpid()) return kInvalidContext;
  void* const memory = fake::map_of(named, 0, named.bytes);
  if (memory == nullptr) return kInvalidValue;
  state().events.push_back(std::make_unique<EventObject>(
      EventObject{fake::current_context(), kEventDisablesTiming | kEventForOtherProcesses}));
  *event = state().events.back().get();
  (*event)->shared = static_cast<Shared*>(memory);
  (*event)->imported = true;
  return kSuccess;
}
