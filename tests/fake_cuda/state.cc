#include "tests/fake_cuda/state.h"

#include <unistd.h>

#include <string_view>

namespace fake {

using hvd::device::kLegacyStream;
using hvd::device::kPerThreadStream;
using hvd::device::StreamObject;

State& state() {
  static auto* const all = new State;  // threads of streams use it until the process ends
  return *all;
}

Thread& thread() {
  thread_local Thread own;
  return own;
}

ContextHandle current_context() {
  if (thread().contexts.empty()) misuse("no context is current on this thread");
  return thread().contexts.back();
}

void must_be_current(ContextHandle context, const char* of_what) {
  const ContextHandle current = current_context();
  if (current != context)
    misuse("wrong context: that of GPU " + std::to_string(current->index) +
           " is current, but the " + of_what + " is of GPU " + std::to_string(context->index));
}

StreamHandle new_stream(ContextHandle context) {
  auto& streams = state().streams;
  streams.push_back(std::make_unique<StreamObject>(context, streams.size()));
  return streams.back().get();
}

StreamHandle resolve(StreamHandle handle) {
  const ContextHandle context = current_context();
  if (handle == nullptr || handle == kLegacyStream) {
    if (context->legacy == nullptr) context->legacy = new_stream(context);
    return context->legacy;
  }
  if (handle == kPerThreadStream) {
    StreamHandle& own = thread().own_streams[context];
    if (own == nullptr) own = new_stream(context);
    return own;
  }
  for (const auto& stream : state().streams) {
    if (stream.get() != handle) continue;
    if (stream->destroyed) misuse("the stream was destroyed");
    return handle;
  }
  misuse("this is no stream");
}

EventHandle checked(EventHandle event) {
  for (const auto& one : state().events) {
    if (one.get() != event) continue;
    if (one->destroyed) misuse("the event was destroyed");
    return event;
  }
  misuse("this is no event");
}

Block* block_of(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto next = state().blocks.upper_bound(at);
  if (next == state().blocks.begin()) return nullptr;
  Block& block = std::prev(next)->second;
  return at < block.begin + block.bytes ? &block : nullptr;
}

void host_sees(const Clock& clock) {
  state().host.join(clock);
  if (state().keeps_accesses) return;
  for (auto& [address, block] : state().blocks) block.log.forget(state().host);
}

void not_during_capture() {
  if (state().captures > 0 && thread().mode != hvd::device::CaptureMode::relaxed)
    misuse("it invalidates the capture of another thread; use the capture mode `relaxed`");
}

std::optional<Result> begin(const char* function) {
  const pid_t process = state().process.load();
  const bool is_init = std::string_view(function) == "cuInit";
  if (process == 0 ? !is_init : process != ::getpid()) return hvd::device::kNotInitialized;
  return begin_fact(function);
}

std::optional<Result> begin_fact(const char* function) {
  return planned_failure("FAKE_CUDA", function);
}

namespace {

void check_access(StreamHandle stream, const char* what, const Access& access) {
  if (access.bytes == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(access.begin);
  Block* const block = block_of(access.begin);
  if (block == nullptr || begin + access.bytes > block->begin + block->bytes)
    misuse(std::string(what) + (access.writes ? " writes " : " reads ") +
           std::to_string(access.bytes) +
           " bytes that are neither device memory nor pinned (freed, pageable or too long)");
  const std::string conflict = block->log.add(
      {begin, begin + access.bytes, access.writes, stream->number, stream->queued, what},
      stream->clock);
  if (!conflict.empty()) misuse(conflict);
}

}  // namespace

void enqueue(StreamHandle stream, const char* what, std::span<const Access> accesses,
             std::function<void()> run) {
  if (stream->holds > 0)
    misuse(std::string(what) +
           " is queued while an operation of NCCL on this stream is still in "
           "progress");
  if (stream->capture != hvd::device::CaptureStatus::none) return;  // a node of a graph
  if (!stream->ignores_host) stream->clock.join(state().host);
  stream->clock.set(stream->number, ++stream->queued);
  for (const Access& access : accesses) check_access(stream, what, access);
  stream->queue.push(std::move(run));
}

}  // namespace fake
