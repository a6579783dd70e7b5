// The CUDA stream of a kernel, read from the objects of TensorFlow that the kernel gets.
//
// TensorFlow's C interface gives the stream of pluggable devices only. For its own GPUs, the
// pointers that lead to the stream are read at offsets which differ per version. Each step is
// checked before it is used, and memory is read by a system call that fails for a wrong address, so
// another layout is an error and not a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hvd::tf {

/// Where the stream is in one version of TensorFlow, and the names of its classes.
struct StreamRow {
  int major, minor;
  size_t parameters;      ///< offset in OpKernelContext: the pointer to its Params
  size_t device_context;  ///< offset in Params: the pointer to the DeviceContext of the kernel
  size_t implementation;  ///< offset in Stream: the pointer to an object of stream_vtable; kItself:
                          ///< the Stream is of that class
  const char* stream_vtable;     ///< symbol of the class of streams
  const char* handle_of_stream;  ///< symbol of its function platform_specific_handle()
};
inline constexpr size_t kItself = ~size_t{0};
/// The same in all versions: the class of the DeviceContext, and its function stream().
inline constexpr char kContextVtable[] = "_ZTVN10tensorflow16GPUDeviceContextE";
inline constexpr char kStreamOfContext[] = "_ZNK10tensorflow16GPUDeviceContext6streamEv";

/// Returns the row for a version such as "2.21.0", nullptr if there is none.
const StreamRow* stream_row_of(std::string_view version);

/// What a TensorFlow exports under the names of a row.
struct StreamSymbols {
  /// A member function without arguments that returns one word: a pointer, or a structure with one.
  using Getter = uintptr_t (*)(uintptr_t object);
  const void* context_vtable = nullptr;
  const void* stream_vtable = nullptr;
  Getter stream_of_context = nullptr;
  Getter handle_of_stream = nullptr;

  bool all_found() const {
    return context_vtable != nullptr && stream_vtable != nullptr && stream_of_context != nullptr &&
           handle_of_stream != nullptr;
  }
};

struct FoundStream {
  void* stream = nullptr;         ///< CUstream
  const char* problem = nullptr;  ///< the step that failed; nullptr: the stream was found
};

/// Looks for the stream of the kernel that has this OpKernelContext and this step id (TF_StepId).
/// All symbols must be found. Any thread.
FoundStream find_stream(const StreamRow& row, const StreamSymbols& symbols, const void* context,
                        int64_t step_id);

}  // namespace hvd::tf
