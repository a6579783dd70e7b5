#include "adapters/tensorflow/gpu_stream.h"

#include <sys/uio.h>
#include <unistd.h>

#include <charconv>
#include <optional>

namespace hvd::tf {
namespace {

constexpr char kCudaStream[] = "_ZTVN15stream_executor3gpu10CudaStreamE";
constexpr char kHandleOfCudaStream[] =
    "_ZNK15stream_executor3gpu10CudaStream24platform_specific_handleEv";
constexpr char kGpuStream[] = "_ZTVN15stream_executor3gpu9GpuStreamE";
constexpr char kHandleOfGpuStream[] =
    "_ZNK15stream_executor3gpu9GpuStream24platform_specific_handleEv";

constexpr char kHandleOfStream[] = "_ZNK15stream_executor6Stream24platform_specific_handleEv";

/// Offsets by compiling offsetof with the headers of 2.15.1, 2.16.2, 2.17.1, 2.18.1, 2.19.1, 2.20.0
/// and 2.21.0; symbols from the libraries of the packages.
constexpr StreamRow kRows[] = {
    {2, 15, 0x10, 0xd8, 0x8, kGpuStream, kHandleOfStream},
    {2, 16, 0x10, 0xd0, 0x8, kGpuStream, kHandleOfStream},
    {2, 17, 0x10, 0xd8, kItself, kGpuStream, kHandleOfGpuStream},
    {2, 18, 0x10, 0xd8, kItself, kGpuStream, kHandleOfGpuStream},
    {2, 19, 0x10, 0xd8, kItself, kCudaStream, kHandleOfCudaStream},
    {2, 20, 0x18, 0xd8, kItself, kCudaStream, kHandleOfCudaStream},
    {2, 21, 0x18, 0xd8, kItself, kCudaStream, kHandleOfCudaStream},
};

/// A word of this process; nullopt if the address is not readable.
std::optional<uintptr_t> word_at(uintptr_t address) {
  uintptr_t word = 0;
  const iovec here{&word, sizeof(word)};
  const iovec there{reinterpret_cast<void*>(address), sizeof(word)};
  const ssize_t bytes = ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0);
  if (bytes != static_cast<ssize_t>(sizeof(word))) return std::nullopt;
  return word;
}

/// Whether an object is of a class: it begins with the address of the functions, which are behind
/// the offset and the type.
bool has_vtable(uintptr_t object, const void* vtable) {
  return word_at(object) == reinterpret_cast<uintptr_t>(vtable) + 2 * sizeof(void*);
}

bool is_stream(const StreamRow& row, const StreamSymbols& symbols, uintptr_t stream) {
  if (row.implementation == kItself) return has_vtable(stream, symbols.stream_vtable);
  const auto implementation = word_at(stream + row.implementation);
  return implementation && has_vtable(*implementation, symbols.stream_vtable);
}

}  // namespace

const StreamRow* stream_row_of(std::string_view version) {
  const char* const end = version.data() + version.size();
  int major = 0, minor = 0;
  const auto first = std::from_chars(version.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return nullptr;
  const auto second = std::from_chars(first.ptr + 1, end, minor);
  if (second.ec != std::errc() || (second.ptr != end && *second.ptr != '.')) return nullptr;
  for (const StreamRow& row : kRows)
    if (row.major == major && row.minor == minor) return &row;
  return nullptr;
}

FoundStream find_stream(const StreamRow& row, const StreamSymbols& symbols, const void* context,
                        int64_t step_id) {
  const auto parameters = word_at(reinterpret_cast<uintptr_t>(context) + row.parameters);
  if (!parameters) return {.problem = "the context of the kernel cannot be read"};
  const auto step = word_at(*parameters);
  if (!step || static_cast<int64_t>(*step) != step_id)
    return {.problem = "the parameters of the kernel are not where they are expected"};
  const auto device = word_at(*parameters + row.device_context);
  if (!device || !has_vtable(*device, symbols.context_vtable))
    return {.problem = "the context of the device is not where it is expected"};
  const uintptr_t stream = symbols.stream_of_context(*device);
  if (!is_stream(row, symbols, stream))
    return {.problem = "the stream of the device is not of the expected class"};
  const uintptr_t handle = symbols.handle_of_stream(stream);
  if (handle == 0) return {.problem = "the stream of the device has no handle"};
  return {.stream = reinterpret_cast<void*>(handle)};
}

}  // namespace hvd::tf
