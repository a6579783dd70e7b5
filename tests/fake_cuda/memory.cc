// The stand-in for libcuda.so.1: memory of GPUs, pinned memory, copies.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/fake_cuda/state.h"

using namespace hvd::device;
using fake::state;

namespace {

using Kind = fake::Block::Kind;

/// Memory begins with values that no test expects.
constexpr size_t kFilledBytes = 1 << 20;

/// The block that begins at an address; aborts if it is of another kind.
std::map<uintptr_t, fake::Block>::iterator block_at(uintptr_t address, Kind kind) {
  const auto found = state().blocks.find(address);
  if (found == state().blocks.end() || found->second.kind != kind)
    fake::misuse("there is no such allocation (freed before?)");
  return found;
}

/// Frees nothing that queued work may use, and nothing while a collective runs.
void must_be_unused(const fake::Block& block, ContextHandle context) {
  if (const auto* const user = block.log.first_unknown_to(state().host))
    fake::misuse(std::string("freed in flight: the host does not know that ") + user->what +
                 " on stream " + std::to_string(user->stream) + " has ended");
  if (context->collectives.load() > 0)
    fake::misuse("it may wait for the collective that is queued on this GPU, for ever");
}

Result add_host_block(void* address, size_t bytes, Kind kind) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (fake::block_of(address) != nullptr) return kMemoryAlreadyRegistered;
  state().blocks[begin] = {
      .kind = kind, .begin = begin, .bytes = bytes, .gpu = fake::current_context()->gpu};
  return kSuccess;
}

}  // namespace

FAKE_EXPORT Result cuMemAlloc_v2(DevicePointer* address, size_t bytes) {
  FAKE_CALL(cuMemAlloc_v2);
  fake::not_during_capture();
  const ContextHandle context = fake::current_context();
  if (bytes == 0) return kInvalidValue;
  char* const memory = context->arena.allocate(bytes);
  if (memory == nullptr) return kOutOfMemory;
  std::memset(memory, 0xa5, std::min(bytes, kFilledBytes));
  *address = reinterpret_cast<DevicePointer>(memory);
  state().blocks[*address] = {
      .kind = Kind::device, .begin = *address, .bytes = bytes, .gpu = context->gpu};
  return kSuccess;
}

FAKE_EXPORT Result cuMemFree_v2(DevicePointer address) {
  FAKE_CALL(cuMemFree_v2);
  fake::not_during_capture();
  const auto found = block_at(address, Kind::device);
  const ContextHandle context = fake::current_context();
  if (found->second.gpu != context->gpu) fake::misuse("wrong context");
  must_be_unused(found->second, context);
  context->arena.free(reinterpret_cast<char*>(address));
  state().blocks.erase(found);
  return kSuccess;
}

FAKE_EXPORT Result cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  FAKE_CALL(cuMemGetInfo_v2);
  *free_bytes = fake::current_context()->arena.free_bytes();
  *total_bytes = fake::current_context()->arena.total_bytes();
  return kSuccess;
}

FAKE_EXPORT Result cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  FAKE_CALL(cuMemHostAlloc);
  fake::not_during_capture();
  *address = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *address == nullptr ? kOutOfMemory : add_host_block(*address, bytes, Kind::pinned);
}

FAKE_EXPORT Result cuMemFreeHost(void* address) {
  FAKE_CALL(cuMemFreeHost);
  fake::not_during_capture();
  const auto found = block_at(reinterpret_cast<uintptr_t>(address), Kind::pinned);
  must_be_unused(found->second, fake::current_context());
  state().blocks.erase(found);
  std::free(address);
  return kSuccess;
}

FAKE_EXPORT Result cuMemHostRegister_v2(void* address, size_t bytes, unsigned) {
  FAKE_CALL(cuMemHostRegister_v2);
  fake::not_during_capture();
  return add_host_block(address, bytes, Kind::registered);
}

FAKE_EXPORT Result cuMemHostUnregister(void* address) {
  FAKE_CALL(cuMemHostUnregister);
  const auto found = block_at(reinterpret_cast<uintptr_t>(address), Kind::registered);
  must_be_unused(found->second, fake::current_context());
  state().blocks.erase(found);
  return kSuccess;
}

FAKE_EXPORT Result cuMemcpyAsync(DevicePointer to, DevicePointer from, size_t bytes,
                                 StreamHandle stream) {
  FAKE_CALL(cuMemcpyAsync);
  stream = fake::resolve(stream);
  fake::must_be_current(stream->context, "stream");
  void* const out = reinterpret_cast<void*>(to);
  const void* const in = reinterpret_cast<const void*>(from);
  const fake::Access accesses[] = {{in, bytes, false}, {out, bytes, true}};
  fake::enqueue(stream, "cuMemcpyAsync", accesses, [=] { std::memmove(out, in, bytes); });
  return kSuccess;
}

FAKE_EXPORT Result cuMemsetD8Async(DevicePointer to, unsigned char value, size_t bytes,
                                   StreamHandle stream) {
  FAKE_CALL(cuMemsetD8Async);
  stream = fake::resolve(stream);
  fake::must_be_current(stream->context, "stream");
  void* const out = reinterpret_cast<void*>(to);
  const fake::Access access{out, bytes, true};
  fake::enqueue(stream, "cuMemsetD8Async", {&access, 1}, [=] { std::memset(out, value, bytes); });
  return kSuccess;
}

FAKE_EXPORT Result cuPointerGetAttribute(void* value, PointerAttribute attribute,
                                         DevicePointer address) {
  FAKE_CALL(cuPointerGetAttribute);
  const fake::Block* const block = fake::block_of(reinterpret_cast<void*>(address));
  if (block == nullptr) return kInvalidValue;
  const bool on_gpu = block->kind == Kind::device || block->kind == Kind::imported;
  if (attribute == PointerAttribute::memory_type) {
    const MemoryType type = on_gpu ? MemoryType::device : MemoryType::host;
    std::memcpy(value, &type, sizeof(type));
    return kSuccess;
  }
  for (const auto& context : state().contexts) {
    if (context->gpu == block->gpu) std::memcpy(value, &context->index, sizeof(int));
  }
  return kSuccess;
}
