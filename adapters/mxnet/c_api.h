// The part of MXNet's C interface that this library uses, of versions 1.9 and 2.0. The declarations
// are our own. The functions are looked up by name in the MXNet of the process; nothing is linked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace hvd::mxnet {

// Opaque types of MXNet.
struct Array;  ///< NDArray: a reference to a chunk of memory, or to a part of it
struct Chunk;
struct Engine;
struct Operation;   ///< in the engine
struct RunContext;  ///< device, stream
struct Error;       ///< see failure.h

struct Context {
  int device_type;
  int32_t device_index;
};
inline constexpr int kCpu = 1;

enum DataType : int {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kUint8 = 3,
  kInt32 = 4,
  kInt8 = 5,
  kInt64 = 6,
  kBool = 7,
  kInt16 = 8,   ///< from 2.0 on
  kUint16 = 9,  ///< from 2.0 on
  kBfloat16 = 12,
};

/// A property of an operation: of those that are ready, the ones with a higher priority start
/// first. Threads of their own start them, so they don't wait for what calculates.
inline constexpr int kPrioritized = 3;

/// What the engine passes to the function of an operation, to be called when the operation has
/// started or ended. Valid only during the function, hence it is copied.
struct Callback {
  void (*call)(Engine*, Operation*, const Error*);
  Engine* engine;
  Operation* operation;

  void operator()(const Error* error) const { call(engine, operation, error); }
};

/// Functions of an operation, of versions 1 and 2.
using Function1 = void (*)(RunContext*, Callback* ended, void* parameter);
using Function2 = void (*)(RunContext*, Callback* started, Callback* ended, void* parameter);

/// Functions of the C interface. They return 0, or -1 with the reason in last_error.
struct Api {
  const char* (*last_error)();
  int (*version)(int*);
  int (*create_array)(const int64_t* shape, int dimensions, int device_type, int device_index,
                      int delay_allocation, int dtype, Array**);
  int (*free_array)(Array*);
  int (*share_array)(Array*, Array**);
  int (*shape)(Array*, int* dimensions, const int64_t**);
  int (*dtype)(Array*, int*);
  int (*context)(Array*, int* device_type, int* device_index);
  int (*data)(Array*, void**);
  /// Calls `destroy` when `parameter` is not needed any more, whether or not `function` was called.
  int (*push)(void* function, void* parameter, void (*destroy)(void*), const Context*,
              Array* const* read, int read_count, Array* const* written, int written_count,
              const int* property, int priority, const char* name, bool wait);
  /// Optional: NDArray::Chunk::Reorder2Default. Rewrites memory that is in a layout of oneDNN.
  void (*reorder)(Chunk*);
};

/// Returns why api() cannot be used, "" if it can.
const std::string& api_problem();
/// Looks the functions up on the first call.
const Api& api();
/// The major version of MXNet.
int api_major();

/// The memory of an array. Arrays that are parts of one array have the same.
inline Chunk* chunk_of(const Array* array) { return *reinterpret_cast<Chunk* const*>(array); }

struct FreeArray {
  void operator()(Array* array) const { api().free_array(array); }
};
using ArrayHandle = std::unique_ptr<Array, FreeArray>;

}  // namespace hvd::mxnet
