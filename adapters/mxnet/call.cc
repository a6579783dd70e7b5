#include "adapters/mxnet/call.h"

#include <algorithm>
#include <span>
#include <utility>

#include "adapters/common/per_process.h"
#include "adapters/mxnet/failure.h"

namespace hvd::mxnet {
namespace {

struct Type {
  DataType theirs;
  hvd_dtype ours;
};
constexpr Type kTypes[] = {
    {kFloat32, HVD_FLOAT32}, {kFloat64, HVD_FLOAT64},   {kFloat16, HVD_FLOAT16},
    {kUint8, HVD_UINT8},     {kInt32, HVD_INT32},       {kInt8, HVD_INT8},
    {kInt64, HVD_INT64},     {kBool, HVD_BOOL},         {kInt16, HVD_INT16},
    {kUint16, HVD_UINT16},   {kBfloat16, HVD_BFLOAT16},
};

struct Workers : adapter::Completions {
  Workers() : Completions({}) {}
};

std::string last_error() { return api().last_error(); }

/// MXNet's Python package makes an exception of the type before the colon.
std::string failure_of(hvd_status status, const std::string& text) {
  switch (status) {
    case HVD_MISMATCH:
      return "HorovodMismatchError: " + text;
    case HVD_INVALID_ARGUMENT:
    case HVD_NOT_INITIALIZED:
      return "MXNetError: " + text;
    default:
      return "HorovodInternalError: " + text;
  }
}

/// Finds the memory of an array that no other operation uses now. The memory may be in a layout of
/// oneDNN, and MXNet's function would then wait for all operations on the array, hence for this
/// one.
bool find_memory(Array* array, const std::vector<int64_t>& shape, void** data) {
  *data = nullptr;
  if (std::ranges::count(shape, 0) > 0) return true;
  if (api().reorder != nullptr) api().reorder(chunk_of(array));
  return api().data(array, data) == 0;
}

void add_once(std::vector<Array*>& arrays, Array* array) {
  const auto is_same = [array](const Array* other) { return chunk_of(other) == chunk_of(array); };
  if (std::ranges::none_of(arrays, is_same)) arrays.push_back(array);
}

hvd_operation operation_of(const hvd_mxnet_request& request) {
  return {.kind = static_cast<hvd_operation_kind>(request.kind),
          .op = static_cast<hvd_reduce_op>(request.op),
          .prescale = request.prescale,
          .postscale = request.postscale,
          .root = request.root,
          .receiver = 0};
}

}  // namespace

Turns& turns() { return *adapter::per_process<Turns>(); }
adapter::Completions& completions() { return *adapter::per_process<Workers>(); }

Call::Call(const hvd_mxnet_request& request)
    : operation_(operation_of(request)), key_(request.process_set, request.name) {}

Call::~Call() {
  if (!has_turn_) return;  // the engine has not run it
  if (Call* const next = turns().remove(key_, this)) completions().add([next] { next->submit(); });
}

std::string Call::push(const hvd_mxnet_request& request) {
  std::unique_ptr<Call> call(new Call(request));
  if (std::string problem = call->take_arrays(request); !problem.empty()) return problem;
  Context context{kCpu, 0};
  api().context(call->tensors_[0].written(), &context.device_type, &context.device_index);
  const Dependencies arrays = call->dependencies();
  turns().add(call->key_, call.get());
  call->has_turn_ = true;
  const auto run = api_major() < 2 ? reinterpret_cast<void*>(run1) : reinterpret_cast<void*>(run2);
  const auto destroy = [](void* pushed) { delete static_cast<Call*>(pushed); };
  const int status = api().push(run, call.release(), destroy, &context, arrays.read.data(),
                                static_cast<int>(arrays.read.size()), arrays.written.data(),
                                static_cast<int>(arrays.written.size()), &kPrioritized,
                                request.priority, "horovod", false);
  return status == 0 ? "" : last_error();
}

std::string Call::take_arrays(const hvd_mxnet_request& request) {
  for (int32_t i = 0; i < request.count; ++i) {
    Tensor tensor;
    if (std::string problem = take_array(request.inputs[i], tensor); !problem.empty())
      return problem;
    if (request.outputs[i] != request.inputs[i]) {
      Array* shared = nullptr;
      if (api().share_array(request.outputs[i], &shared) != 0) return last_error();
      tensor.output.reset(shared);
    }
    tensors_.push_back(std::move(tensor));
  }
  return tensors_.empty() ? "there is no array" : "";
}

/// Keeps the memory of an array, even if the program drops the array.
std::string Call::take_array(Array* array, Tensor& tensor) {
  Array* shared = nullptr;
  if (api().share_array(array, &shared) != 0) return last_error();
  tensor.input.reset(shared);
  int dimensions = 0, type = 0;
  const int64_t* shape = nullptr;
  if (api().shape(shared, &dimensions, &shape) != 0 || api().dtype(shared, &type) != 0)
    return last_error();
  tensor.shape.assign(shape, shape + dimensions);
  const auto* const known = std::ranges::find(kTypes, type, &Type::theirs);
  if (known == std::end(kTypes)) return "MXNet's type " + std::to_string(type) + " is unknown";
  tensor.dtype = known->ours;
  return "";
}

/// Each memory once: the engine would wait for ever for one that is listed twice.
Call::Dependencies Call::dependencies() const {
  Dependencies found;
  for (const Tensor& tensor : tensors_) add_once(found.written, tensor.written());
  std::vector<Array*> all = found.written;
  for (const Tensor& tensor : tensors_) add_once(all, tensor.input.get());
  found.read.assign(all.begin() + static_cast<std::ptrdiff_t>(found.written.size()), all.end());
  return found;
}

void Call::run1(RunContext* /*context*/, Callback* ended, void* call) {
  static_cast<Call*>(call)->start(*ended);
}

void Call::run2(RunContext* /*context*/, Callback* started, Callback* ended, void* call) {
  if (started->call != nullptr) (*started)(nullptr);
  static_cast<Call*>(call)->start(*ended);
}

void Call::start(const Callback& ended) {
  ended_ = ended;
  if (turns().ready(key_, this)) submit();
}

/// After this, the call may have been destroyed.
void Call::submit() {
  if (const std::string failure = submit_tensors(); !failure.empty()) end_with(failure);
}

/// Returns the failure, "" on success.
std::string Call::submit_tensors() {
  std::vector<hvd_tensor> inputs;
  std::vector<void*> outputs;
  for (const Tensor& tensor : tensors_) {
    void *input = nullptr, *output = nullptr;
    if (!find_memory(tensor.input.get(), tensor.shape, &input)) return last_error();
    if (tensor.output && api().data(tensor.output.get(), &output) != 0) return last_error();
    inputs.push_back({input,
                      tensor.shape.data(),
                      static_cast<int32_t>(tensor.shape.size()),
                      tensor.dtype,
                      {HVD_HOST, 0},
                      nullptr});
    outputs.push_back(tensor.output ? output : input);
  }
  hvd_request request{};
  request.operation = operation_;
  request.name = key_.second.c_str();
  request.process_set = key_.first;
  request.count = static_cast<int32_t>(inputs.size());
  request.inputs = inputs.data();
  request.outputs = outputs.data();
  request.owner = this;
  request.ended = end_elsewhere;
  const hvd_status status = hvd_submit(&request, nullptr);
  return status == HVD_OK ? "" : failure_of(status, hvd_last_error());
}

/// Runs on the progress thread, which must not block.
void Call::end_elsewhere(void* call, const hvd_ending* ending) {
  completions().add([call = static_cast<Call*>(call), status = ending->status,
                     text = std::string(ending->text)] { call->end(status, text); });
}

void Call::end(hvd_status status, const std::string& text) {
  end_with(status == HVD_OK ? "" : failure_of(status, text));
}

/// Tells the engine, which destroys this call.
void Call::end_with(const std::string& failure) {
  Call* const next = turns().remove(key_, this);
  has_turn_ = false;
  const Callback ended = ended_;
  const Failure error(failure);
  ended(failure.empty() ? nullptr : error.error());
  if (next != nullptr) next->submit();
}

}  // namespace hvd::mxnet
