// The part of XLA's foreign function interface (FFI) that this library uses, version 0.1, which
// jaxlib has since 0.6.0. The declarations are our own, and nothing is linked: XLA calls a handler
// with a frame that has a table of its functions. tests/jax compares the layouts with the headers
// of the installed jaxlib.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::xla {

// Opaque types of XLA.
struct Error;
struct Future;
struct Context;

/// The first field of an extensible structure of XLA is its size, the second one this list.
struct Extension {
  size_t struct_size;
  int type;
  Extension* next;
};
inline constexpr int kMetadataExtension = 1;

struct Version {
  size_t struct_size;
  Extension* extensions;
  int major, minor;
};
/// What this library is written for. XLA accepts handlers of older minor versions.
inline constexpr int kMajor = 0, kMinor = 1;

/// XLA asks a handler for this when the handler is registered, by an extension of the frame.
struct Metadata {
  size_t struct_size;
  Version version;
  uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

enum DataType : int {
  kBool = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint8 = 6,
  kUint16 = 7,
  kFloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
  kBfloat16 = 16,
  kToken = 17,  ///< has no memory; carries the order of calls
};

struct Buffer {
  size_t struct_size;
  Extension* extensions;
  DataType dtype;
  void* data;
  int64_t rank;
  int64_t* dims;  ///< [rank], valid while the handler runs
};

/// The arguments, and the results.
struct Buffers {
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  int* types;      ///< [size]
  Buffer** items;  ///< [size]; all types are buffers
};

struct Text {
  const char* data;
  size_t length;
};

/// The value of an attribute with one element.
struct Scalar {
  DataType dtype;
  void* value;
};
enum AttributeType : int { kScalar = 3, kString = 4 };

struct Attributes {
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  AttributeType* types;  ///< [size]
  Text** names;          ///< [size]
  void** values;         ///< [size], Scalar or Text
};

enum Code : int {
  kInvalidArgument = 3,
  kFailedPrecondition = 9,
  kInternal = 13,
  kUnavailable = 14,
};

struct ErrorArguments {
  size_t struct_size;
  Extension* extensions;
  const char* message;
  Code code;
};
struct NewFutureArguments {
  size_t struct_size;
  Extension* extensions;
  Future* future;  ///< out
};
struct FutureArguments {
  size_t struct_size;
  Extension* extensions;
  Future* future;
};
struct FutureErrorArguments {
  size_t struct_size;
  Extension* extensions;
  Future* future;
  Error* error;  ///< XLA takes it over
};

/// XLA's functions. Those that this library does not use have no type.
struct Api {
  size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*new_error)(ErrorArguments*);
  void* unused[12];
  Error* (*new_future)(NewFutureArguments*);
  Error* (*future_available)(FutureArguments*);
  Error* (*future_failed)(FutureErrorArguments*);
};

struct Frame {
  size_t struct_size;
  Extension* extensions;
  const Api* api;
  Context* context;
  int stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
  Future* future;  ///< out: set by a handler whose results come later
};

}  // namespace hvd::xla
