// The part of TensorFlow's C API that this library uses. The declarations are our own. The
// functions are looked up by name in the TensorFlow of the process, of any version; nothing is
// linked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace hvd::tf {

// Opaque types of TensorFlow.
struct Status;
struct Tensor;
struct Shape;
struct Inference;  ///< TF_ShapeInferenceContext
struct OpBuilder;  ///< TF_OpDefinitionBuilder
struct KernelBuilder;
struct Construction;            ///< TF_OpKernelConstruction
struct Execution;               ///< TF_OpKernelContext: one execution of one node
struct DoneCallback;            ///< TF_AsyncOpKernelDoneCallback; see done.h
using PluggableStream = void*;  ///< SP_Stream

enum DataType : int {
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kInt64 = 9,
  kBool = 10,
  kBfloat16 = 14,
  kUint16 = 17,
  kHalf = 19,
};

enum Code : int {
  kOk = 0,
  kUnknown = 2,
  kInvalidArgument = 3,
  kFailedPrecondition = 9,
  kAborted = 10,
};

/// The frame of nodes outside loops.
inline constexpr uint64_t kRootFrame = 0;

struct StringView {
  const char* data;
  size_t length;
};

/// Functions of the C API. Either all are found or none is used.
struct Api {
  Status* (*new_status)();
  void (*delete_status)(Status*);
  void (*set_status)(Status*, Code, const char*);
  Code (*code)(const Status*);
  const char* (*message)(const Status*);

  DataType (*tensor_type)(const Tensor*);
  int (*num_dims)(const Tensor*);
  int64_t (*dim)(const Tensor*, int);
  void* (*tensor_data)(const Tensor*);
  size_t (*tensor_bytes)(const Tensor*);
  Tensor* (*new_tensor)(DataType, const int64_t* dims, int num_dims, void* data, size_t bytes,
                        void (*deallocate)(void*, size_t, void*), void* argument);
  void (*delete_tensor)(Tensor*);

  OpBuilder* (*new_op)(const char* name);
  void (*add_attribute)(OpBuilder*, const char*);
  void (*add_input)(OpBuilder*, const char*);
  void (*add_output)(OpBuilder*, const char*);
  void (*set_stateful)(OpBuilder*, bool);
  void (*set_shape_inference)(OpBuilder*, void (*)(Inference*, Status*));
  void (*register_op)(OpBuilder*, Status*);

  int64_t (*inference_inputs)(Inference*);
  Shape* (*new_shape)();
  void (*delete_shape)(Shape*);
  void (*inference_input)(Inference*, int, Shape*, Status*);
  void (*inference_output)(Inference*, int, Shape*, Status*);
  Shape* (*scalar)(Inference*);
  Shape* (*vector)(Inference*, size_t);
  void (*with_rank_at_least)(Inference*, Shape*, int64_t, Shape* result, Status*);
  void (*subshape)(Inference*, Shape*, int64_t begin, int64_t end, Shape* result, Status*);
  void (*concatenate)(Inference*, Shape*, Shape*, Shape* result, Status*);

  KernelBuilder* (*new_kernel)(const char* op, const char* device, void* (*create)(Construction*),
                               void (*compute)(void*, Execution*), void (*destroy)(void*));
  KernelBuilder* (*new_async_kernel)(const char* op, const char* device,
                                     void* (*create)(Construction*),
                                     void (*compute)(void*, Execution*, DoneCallback*),
                                     void (*destroy)(void*));
  void (*register_kernel)(const char* name, KernelBuilder*, Status*);
  void (*run_done)(DoneCallback*);

  StringView (*node_name)(Construction*);
  void (*attribute_int)(Construction*, const char*, int64_t*, Status*);
  void (*attribute_bool)(Construction*, const char*, unsigned char*, Status*);
  void (*construction_failed)(Construction*, Status*);

  uint64_t (*frame_id)(Execution*);
  int64_t (*iteration_id)(Execution*);
  int (*num_inputs)(Execution*);
  void (*get_input)(Execution*, int, Tensor**, Status*);
  void (*set_output)(Execution*, int, const Tensor*, Status*);
  Tensor* (*allocate_output)(Execution*, int, DataType, const int64_t* dims, int num_dims,
                             size_t bytes, Status*);
  Tensor* (*forward_or_allocate)(Execution*, const int* inputs, int num_inputs, int output,
                                 const int64_t* dims, int num_dims, int* forwarded, Status*);
  void (*execution_failed)(Execution*, Status*);
};

/// What kernels for GPUs need besides. If a function is missing, there are only kernels for the
/// host.
struct GpuApi {
  void (*host_memory)(KernelBuilder*, const char* argument);
  int64_t (*step_id)(Execution*);
  int (*device_id)(Execution*);  ///< as CUDA counts
  PluggableStream (*get_stream)(Execution*, Status*);
  bool is_complete() const {
    return host_memory != nullptr && step_id != nullptr && device_id != nullptr &&
           get_stream != nullptr;
  }
};

/// Returns why api() cannot be used, "" if it can.
const std::string& api_problem();
/// Looks the functions up on the first call.
const Api& api();
const GpuApi& gpu_api();
/// A symbol of TensorFlow's library; nullptr if it has none of this name.
void* framework_symbol(const char* name);

/// Owns a status, which functions of TensorFlow write. Used by one thread.
class Result {
 public:
  Result() : status_(api().new_status()) {}
  Result(Code code, const std::string& text) : Result() {
    api().set_status(status_.get(), code, text.c_str());
  }
  operator Status*() const { return status_.get(); }
  bool ok() const { return api().code(status_.get()) == kOk; }
  std::string text() const { return api().message(status_.get()); }

 private:
  struct Delete {
    void operator()(Status* status) const { api().delete_status(status); }
  };
  std::unique_ptr<Status, Delete> status_;
};

struct DeleteTensor {
  void operator()(Tensor* tensor) const { api().delete_tensor(tensor); }
};
using TensorHandle = std::unique_ptr<Tensor, DeleteTensor>;

}  // namespace hvd::tf
