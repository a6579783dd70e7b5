#include "adapters/tensorflow/call.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adapters/tensorflow/arguments.h"
#include "adapters/tensorflow/completing.h"
#include "adapters/tensorflow/ending.h"
#include "adapters/tensorflow/gpu.h"
#include "adapters/tensorflow/gpu_operation.h"
#include "adapters/tensorflow/in_flight.h"

namespace hvd::tf {
namespace {

struct Type {
  DataType theirs;
  hvd_dtype ours;
};
constexpr Type kTypes[] = {
    {kFloat, HVD_FLOAT32},     {kDouble, HVD_FLOAT64}, {kInt32, HVD_INT32},  {kUint8, HVD_UINT8},
    {kInt16, HVD_INT16},       {kInt8, HVD_INT8},      {kInt64, HVD_INT64},  {kBool, HVD_BOOL},
    {kBfloat16, HVD_BFLOAT16}, {kUint16, HVD_UINT16},  {kHalf, HVD_FLOAT16},
};

hvd_dtype ours(DataType theirs) {
  for (const Type& type : kTypes)
    if (type.theirs == theirs) return type.ours;
  return HVD_UINT8;  // unreachable: the ops accept no other type
}

DataType theirs(hvd_dtype ours) {
  for (const Type& type : kTypes)
    if (type.ours == ours) return type.theirs;
  return kUint8;
}

/// Converts a status to the error code that TensorFlow's users see.
Code code_of(hvd_status status) {
  switch (status) {
    case HVD_OK:
      return kOk;
    case HVD_INVALID_ARGUMENT:
      return kInvalidArgument;
    case HVD_MISMATCH:
    case HVD_NOT_INITIALIZED:
      return kFailedPrecondition;
    default:
      return kUnknown;
  }
}

void free_output(void* data, size_t, void*) { hvd_free_memory(data); }

Dims dims_of(const Tensor* tensor) {
  Dims dims(static_cast<size_t>(api().num_dims(tensor)));
  for (size_t i = 0; i < dims.size(); ++i) dims[i] = api().dim(tensor, static_cast<int>(i));
  return dims;
}

/// Owns itself from start() on. Deletes itself after it has reported the result to TensorFlow.
class Call final : public GpuCaller {
 public:
  Call(const Node& node, Execution* execution, Done done)
      : node_(node), execution_(execution), done_(std::move(done)) {}

  void start(Place place) {
    if (take_place(place) && take_inputs() && make_outputs() && make_ready()) return submit();
    finish();
  }

  /// TensorFlow allows this on any thread while an asynchronous kernel runs.
  const char* allocate(int32_t index, std::span<const int64_t> shape, hvd_tensor* output) override {
    Operand& operand = operands_[static_cast<size_t>(index)];
    const Result result;
    operand.output.reset(api().allocate_output(execution_, index,
                                               api().tensor_type(operand.input.get()), shape.data(),
                                               static_cast<int>(shape.size()), 0, result));
    problem_ = result.ok() ? synchronize(*gpu_) : result.text();
    if (!problem_.empty()) return problem_.c_str();
    output->data = api().tensor_data(operand.output.get());
    output->stream = gpu_->stream;
    return nullptr;
  }

  void completed(hvd_handle handle, const Ending& ending) override {
    end(ending.status == HVD_OK ? settled(handle, ending) : ending);
  }

 private:
  struct Operand {
    TensorHandle input;
    TensorHandle output{};  ///< empty if the runtime allocates the output
    Dims dims;
  };

  /// Tensors of a barrier and of a join are on no device.
  bool take_place(Place place) {
    if (place == Place::host || node_.tensors == 0) return true;
    gpu_.emplace();
    const std::string problem = find_stream_of(execution_, *gpu_);
    return problem.empty() || fail(kFailedPrecondition, problem);
  }

  /// The last step before the submission: outputs may be in memory that earlier work has used.
  bool make_ready() {
    if (!gpu_) return true;
    std::string problem = find_number(execution_, first_address(), *gpu_);
    if (problem.empty()) problem = synchronize(*gpu_);
    return problem.empty() || fail(kFailedPrecondition, problem);
  }

  const void* first_address() const {
    for (const Operand& operand : operands_) {
      if (api().tensor_bytes(operand.input.get()) > 0)
        return api().tensor_data(operand.input.get());
    }
    return nullptr;
  }

  /// Makes TensorFlow's stream wait for the result of an operation that is queued on the GPU.
  Ending settled(hvd_handle handle, const Ending& ending) const {
    if (!gpu_->is_synchronized) {
      const hvd_status status = hvd_wait_on_stream(handle, gpu_->stream);
      return status == HVD_OK ? ending : failure(status);
    }
    const std::string problem = synchronize(*gpu_);
    return problem.empty() ? ending : Ending{.status = HVD_INTERNAL, .text = problem};
  }

  bool take_inputs() {
    if (const std::string problem = read_arguments(node_, execution_, arguments_); !problem.empty())
      return fail(kInvalidArgument, problem);
    if (node_.op.kind == HVD_REDUCESCATTER && !is_sum_or_average()) {
      return fail(kAborted, "reducescatter reduces by Sum or Average only");
    }
    operands_.reserve(static_cast<size_t>(node_.tensors));
    for (int i = 0; i < node_.tensors; ++i) {
      std::optional<Operand> operand = take_operand(i);
      if (!operand) return false;
      operands_.push_back(std::move(*operand));
    }
    return node_.op.kind != HVD_ALLTOALL || take_splits();
  }

  std::optional<Operand> take_operand(int i) {
    TensorHandle input = get_input(i);
    if (!input) return std::nullopt;
    Dims dims = dims_of(input.get());
    return Operand{.input = std::move(input), .dims = std::move(dims)};
  }

  bool is_sum_or_average() const {
    return node_.reduce_op == HVD_SUM || node_.reduce_op == HVD_AVERAGE;
  }

  bool take_splits() {
    splits_ = take_operand(node_.tensors);
    if (!splits_) return false;
    if (splits_->dims.size() == 1) return true;
    return fail(kInvalidArgument, "splits must be a vector, but have " +
                                      std::to_string(splits_->dims.size()) + " dimensions");
  }

  TensorHandle get_input(int i) {
    Tensor* tensor = nullptr;
    const Result result;
    api().get_input(execution_, i, &tensor, result);
    if (!result.ok()) fail(api().code(result), result.text());
    return TensorHandle(tensor);
  }

  bool make_outputs() {
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (!make_output(static_cast<int>(i), operands_[i])) return false;
    }
    return true;
  }

  bool make_output(int i, Operand& operand) {
    switch (node_.op.kind) {
      case HVD_ALLREDUCE:
      case HVD_BROADCAST:
        return forward(i, operand);
      case HVD_REDUCESCATTER:
        operand.output = allocate(i, operand, own_rows(operand.dims));
        return operand.output != nullptr;
      default:
        return true;
    }
  }

  /// Reuses the memory of an input as output if nothing else reads it. Drops our handle meanwhile,
  /// because TensorFlow counts it as a reader.
  bool forward(int i, Operand& operand) {
    const Result result;
    int forwarded = -1;
    operand.input.reset();
    operand.output.reset(api().forward_or_allocate(execution_, &i, 1, i, operand.dims.data(),
                                                   static_cast<int>(operand.dims.size()),
                                                   &forwarded, result));
    if (!result.ok()) return fail(api().code(result), result.text());
    operand.input = get_input(i);
    return operand.input != nullptr;
  }

  TensorHandle allocate(int i, const Operand& operand, const Dims& dims) {
    const Result result;
    TensorHandle output(api().allocate_output(execution_, i, api().tensor_type(operand.input.get()),
                                              dims.data(), static_cast<int>(dims.size()), 0,
                                              result));
    if (!result.ok()) fail(api().code(result), result.text());
    return output;
  }

  /// Returns the shape of a reducescatter's output on this rank. Ignores errors, which the runtime
  /// reports.
  Dims own_rows(Dims dims) const {
    int32_t size = 1, rank = 0;
    if (hvd_get_process_set(arguments_.process_set, &size, &rank) != HVD_OK || rank < 0) rank = 0;
    if (!dims.empty()) dims[0] = dims[0] / size + (rank < dims[0] % size ? 1 : 0);
    return dims;
  }

  void submit() {
    std::vector<hvd_tensor> inputs;
    std::vector<void*> outputs;
    for (const Operand& operand : operands_) {
      Tensor* input = operand.input.get();
      inputs.push_back(
          described(api().tensor_data(input), operand.dims, ours(api().tensor_type(input))));
      outputs.push_back(operand.output ? api().tensor_data(operand.output.get()) : nullptr);
    }
    hvd_request request = make_request(inputs, outputs);
    if (node_.blocking && !gpu_) return submit_and_wait(request);
    if (!node_.blocking) {
      if (!InFlight::instance().add(key())) return refuse_second_run();
      is_in_flight_ = true;
    }
    if (gpu_) {
      // After success `this` may be deleted.
      if (const hvd_status status = submit_on_gpu(request, *this); status != HVD_OK)
        end(failure(status));
      return;
    }
    request.owner = this;
    request.ended = [](void* call, const hvd_ending* ending) {
      static_cast<Call*>(call)->end_elsewhere(*ending);
    };
    // After success `this` may be deleted.
    const hvd_status status = hvd_submit(&request, nullptr);
    if (status != HVD_OK) end(failure(status));
  }

  /// In host memory, TensorFlow has copied other tensors there.
  hvd_tensor described(void* data, const Dims& dims, hvd_dtype dtype) const {
    hvd_tensor made{data, dims.data(), static_cast<int32_t>(dims.size()), dtype, {}, nullptr};
    if (!gpu_) return made;
    made.device = {HVD_CUDA, gpu_->index};
    made.stream = gpu_->stream;
    return made;
  }

  InFlight::Key key() const { return {arguments_.process_set, arguments_.name}; }

  std::string why_not_twice(const hvd_world& world) const {
    return "\"" + arguments_.name + "\" was run again on rank " + std::to_string(world.rank) +
           " before its last run had ended, so ranks cannot match the runs; this has ended the "
           "job. Run it once at a time: call its tf.function from one thread, and omit "
           "num_parallel_calls if a dataset calls it";
  }

  /// Rejects a second run and ends the job. This rank would be one run behind from now on, and
  /// other ranks may wait for it.
  void refuse_second_run() {
    hvd_world world{};
    hvd_get_world(&world);
    const std::string why = why_not_twice(world);
    const bool ends_job = InFlight::instance().blame(why, world.generation);
    fail(kInvalidArgument, why);
    finish();
    if (ends_job) completions().add([] { hvd_shutdown(); });
  }

  void submit_and_wait(const hvd_request& request) {
    hvd_handle handle = 0;
    if (const hvd_status status = hvd_submit(&request, &handle); status != HVD_OK)
      return end(failure(status));
    const hvd_status status = hvd_wait(handle);
    const Ending ending = status == HVD_OK ? take_results(handle) : failure(status);
    hvd_free(handle);
    end(ending);
  }

  /// Called on the progress thread, which must not block. A thread of Completions does the rest.
  void end_elsewhere(const hvd_ending& ending) {
    ending_ = copy_of(ending);
    completions().add([this] { end(ending_); });
  }

  hvd_request make_request(const std::vector<hvd_tensor>& inputs,
                           const std::vector<void*>& outputs) const {
    hvd_request request{};
    request.operation.kind = node_.op.kind;
    request.name = arguments_.name.c_str();
    request.process_set = arguments_.process_set;
    request.count = static_cast<int32_t>(inputs.size());
    request.inputs = inputs.data();
    request.outputs = outputs.data();
    request.operation.op = node_.reduce_op;
    request.operation.prescale = arguments_.prescale;
    request.operation.postscale = arguments_.postscale;
    request.operation.root = arguments_.root;
    if (splits_ && splits_->dims[0] > 0) {
      request.splits = static_cast<const int32_t*>(api().tensor_data(splits_->input.get()));
      request.split_count = static_cast<int32_t>(splits_->dims[0]);
    }
    return request;
  }

  Ending take_results(hvd_handle handle) const {
    Ending ending;
    for (int32_t i = 0; i < outputs_of_runtime(); ++i) {
      hvd_tensor output{};
      hvd_take_output(handle, i, &output);
      ending.add(output);
    }
    if (node_.op.kind == HVD_JOIN) hvd_get_last_joined(handle, &ending.last_joined);
    return ending;
  }

  int32_t outputs_of_runtime() const {
    if (node_.op.kind == HVD_ALLTOALL) return 2;
    return node_.op.kind == HVD_ALLGATHER ? static_cast<int32_t>(operands_.size()) : 0;
  }

  void end(const Ending& ending) {
    std::string blamed = is_in_flight_ ? InFlight::instance().remove(key()) : "";
    if (blamed.empty()) blamed = why_job_ended(ending.status);
    if (ending.status != HVD_OK && !blamed.empty()) {
      fail(kInvalidArgument, blamed);
    } else if (ending.status != HVD_OK) {
      fail(code_of(ending.status), ending.text);
    } else if (node_.op.kind == HVD_JOIN) {
      give_number(ending.last_joined);
    } else {
      int i = 0;
      for (const Ending::Output& output : ending.outputs) {
        if (!gpu_ || i >= node_.tensors) give(i, output);  // others are with TensorFlow already
        ++i;
      }
    }
    finish();
  }

  /// Returns the reason if a second run has ended the job before this operation, "" otherwise.
  static std::string why_job_ended(hvd_status status) {
    if (status != HVD_SHUT_DOWN && status != HVD_NOT_INITIALIZED) return "";
    hvd_world world{};
    return hvd_get_world(&world) == HVD_OK ? InFlight::instance().why_ended(world.generation)
                                           : InFlight::instance().why_ended();
  }

  /// Passes memory of the runtime to TensorFlow without a copy. An empty tensor has none.
  void give(int i, const Ending::Output& output) {
    size_t elements = 1;
    for (const int64_t dim : output.dims) elements *= static_cast<size_t>(dim);
    const auto rank = static_cast<int>(output.dims.size());
    const DataType type = theirs(output.dtype);
    const Result result;
    TensorHandle tensor;
    if (elements > 0) {
      tensor.reset(api().new_tensor(type, output.dims.data(), rank, output.data,
                                    elements * element_bytes(output.dtype), free_output, nullptr));
      api().set_output(execution_, i, tensor.get(), result);
    } else {
      hvd_free_memory(output.data);
      tensor.reset(api().allocate_output(execution_, i, type, output.dims.data(), rank, 0, result));
    }
    if (!result.ok()) fail(api().code(result), result.text());
  }

  void give_number(int32_t number) {
    const Result result;
    TensorHandle output(api().allocate_output(execution_, 0, kInt32, nullptr, 0, 0, result));
    if (!result.ok()) {
      fail(api().code(result), result.text());
    } else {
      *static_cast<int32_t*>(api().tensor_data(output.get())) = number;
    }
  }

  static size_t element_bytes(hvd_dtype dtype) {
    constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2};
    return kBytes[dtype];
  }

  /// Sets the error of the execution. Always returns false.
  bool fail(Code code, const std::string& why) {
    api().execution_failed(execution_, Result(code, node_.op.name + (": " + why)));
    return false;
  }

  void finish() {
    operands_.clear();
    splits_.reset();
    const Done done = std::move(done_);
    delete this;
    done();
  }

  const Node& node_;  ///< valid until `done`
  Execution* execution_;
  Done done_;
  Arguments arguments_;
  std::vector<Operand> operands_;
  std::optional<Operand> splits_;
  std::optional<Gpu> gpu_;     ///< nullopt: the tensors are in host memory
  std::string problem_;        ///< of allocate(), kept for the runtime
  bool is_in_flight_ = false;  ///< registered with InFlight
  Ending ending_;              ///< passed from the progress thread to a thread of Completions
};

}  // namespace

void start_call(const Node& node, Execution* execution, Place place, Done done) {
  (new Call(node, execution, std::move(done)))->start(place);
}

}  // namespace hvd::tf
