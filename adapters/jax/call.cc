#include "adapters/jax/call.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>

namespace hvd::xla {
namespace {

struct Type {
  DataType theirs;
  hvd_dtype ours;
};
constexpr Type kTypes[] = {
    {kBool, HVD_BOOL},       {kInt8, HVD_INT8},         {kInt16, HVD_INT16},
    {kInt32, HVD_INT32},     {kInt64, HVD_INT64},       {kUint8, HVD_UINT8},
    {kUint16, HVD_UINT16},   {kFloat16, HVD_FLOAT16},   {kFloat32, HVD_FLOAT32},
    {kFloat64, HVD_FLOAT64}, {kBfloat16, HVD_BFLOAT16},
};

hvd_dtype ours(DataType theirs) {
  for (const Type& type : kTypes)
    if (type.theirs == theirs) return type.ours;
  return HVD_UINT8;  // unreachable: the package accepts no other type
}

std::vector<int64_t> shape_of(const Buffer& buffer) {
  return {buffer.dims, buffer.dims + buffer.rank};
}

/// All but tokens.
std::vector<const Buffer*> tensors(const Buffers& buffers) {
  std::vector<const Buffer*> found;
  for (const Buffer* buffer : std::span(buffers.items, static_cast<size_t>(buffers.size)))
    if (buffer->dtype != kToken) found.push_back(buffer);
  return found;
}

const char* name_of(hvd_operation_kind kind) {
  constexpr const char* kNames[] = {"allreduce",     "allgather", "broadcast", "alltoall",
                                    "reducescatter", "barrier",   "join",      "message"};
  return kNames[kind];
}

bool runtime_allocates(hvd_operation_kind kind) {
  return kind == HVD_ALLGATHER || kind == HVD_ALLTOALL;
}

std::string text_of(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

/// A request with the arrays to which it refers. Not moved once it is made.
struct Submission {
  std::string name;
  std::vector<hvd_tensor> inputs;
  std::vector<void*> outputs;
};

hvd_request request_of(const Arguments& arguments, const Submission& submission) {
  hvd_request request{};
  request.operation = arguments.operation;
  request.name = submission.name.c_str();
  request.process_set = arguments.process_set;
  request.count = static_cast<int32_t>(submission.inputs.size());
  request.inputs = submission.inputs.data();
  request.outputs =
      runtime_allocates(arguments.operation.kind) ? nullptr : submission.outputs.data();
  return request;
}

}  // namespace

Call::Call(const Frame& frame) : arguments_(read_arguments(frame.attributes)) {
  const std::vector<const Buffer*> inputs = tensors(frame.arguments);
  const std::vector<const Buffer*> outputs = tensors(frame.results);
  for (size_t i = 0; i < inputs.size(); ++i)
    leaves_.push_back({.input = inputs[i]->data,
                       .output = outputs[i]->data,
                       .input_shape = shape_of(*inputs[i]),
                       .output_shape = shape_of(*outputs[i]),
                       .dtype = ours(inputs[i]->dtype)});
  groups_ = groups();
}

/// The runtime takes tensors of one dtype as one operation, and those of an alltoall one by one. A
/// barrier has no tensors.
std::vector<Call::Group> Call::groups() const {
  if (leaves_.empty()) return {Group{}};
  std::vector<Group> groups;
  std::map<hvd_dtype, size_t> of_type;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const bool alone = arguments_.operation.kind == HVD_ALLTOALL;
    const auto [place, is_new] = of_type.try_emplace(leaves_[i].dtype, groups.size());
    if (is_new || alone) groups.emplace_back();
    groups[alone ? groups.size() - 1 : place->second].push_back(i);
  }
  return groups;
}

Outcome Call::submit() {
  std::vector<Submission> submissions(groups_.size());
  std::vector<hvd_request> requests;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Submission& submission = submissions[g];
    submission.name = arguments_.name + (g > 0 ? "." + std::to_string(g) : "");
    for (const size_t i : groups_[g]) {
      const Leaf& leaf = leaves_[i];
      submission.inputs.push_back({leaf.input,
                                   leaf.input_shape.data(),
                                   static_cast<int32_t>(leaf.input_shape.size()),
                                   leaf.dtype,
                                   {HVD_HOST, 0},
                                   nullptr});
      submission.outputs.push_back(leaf.output);
    }
    requests.push_back(request_of(arguments_, submission));
  }
  handles_.resize(groups_.size());
  const hvd_status status =
      hvd_submit_all(requests.data(), static_cast<int32_t>(requests.size()), handles_.data());
  if (status != HVD_OK) return {status, described() + hvd_last_error()};
  return {};
}

bool Call::ends_within(std::chrono::microseconds patience) const {
  return std::ranges::all_of(
      handles_, [=](hvd_handle handle) { return hvd_poll_for(handle, patience.count()); });
}

/// Waits for all operations, even if some fail.
Outcome Call::finish() const {
  Outcome first;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Outcome outcome = finish_one(groups_[g], handles_[g]);
    if (first.status == HVD_OK) first = outcome;
  }
  return first;
}

Outcome Call::finish_one(const Group& group, hvd_handle handle) const {
  const hvd_status status = hvd_wait(handle);
  Outcome outcome{status, status == HVD_OK ? "" : described() + hvd_last_error()};
  if (status == HVD_OK && runtime_allocates(arguments_.operation.kind))
    outcome = take_outputs(group, handle);
  hvd_free(handle);
  return outcome;
}

Outcome Call::take_outputs(const Group& group, hvd_handle handle) const {
  Outcome first;
  for (size_t i = 0; i < group.size(); ++i) {
    hvd_tensor output{};
    hvd_take_output(handle, static_cast<int32_t>(i), &output);
    const Outcome outcome = copy_output(leaves_[group[i]], output);
    if (first.status == HVD_OK) first = outcome;
    hvd_free_memory(output.data);
  }
  return first;
}

/// XLA has allocated the result from the shapes on this rank.
Outcome Call::copy_output(const Leaf& leaf, const hvd_tensor& output) const {
  const std::span<const int64_t> shape(output.shape, static_cast<size_t>(output.dimensions));
  if (!std::ranges::equal(shape, leaf.output_shape))
    return {HVD_INVALID_ARGUMENT,
            described() + "the result has the shape " + text_of(shape) + ", and " +
                text_of(leaf.output_shape) +
                " was compiled: inside jax.jit all ranks must pass equal numbers of rows"};
  size_t bytes = hvd_dtype_bytes(leaf.dtype);
  for (const int64_t dim : shape) bytes *= static_cast<size_t>(dim);
  if (bytes > 0) std::memcpy(leaf.output, output.data, bytes);
  return {};
}

std::string Call::described() const {
  return std::string("horovod.jax ") + name_of(arguments_.operation.kind) + ": ";
}

}  // namespace hvd::xla
