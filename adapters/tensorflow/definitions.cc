#include "adapters/tensorflow/definitions.h"

#include <limits>
#include <memory>
#include <string>

#include "adapters/tensorflow/c_api.h"
#include "adapters/tensorflow/op.h"

namespace hvd::tf {
namespace {

constexpr size_t kUnknownSize = std::numeric_limits<size_t>::max();

struct DeleteShape {
  void operator()(Shape* shape) const { api().delete_shape(shape); }
};
using ShapeHandle = std::unique_ptr<Shape, DeleteShape>;

ShapeHandle new_shape() { return ShapeHandle(api().new_shape()); }

/// Copies an error to `status` unless that has an error already.
void keep(const Result& result, Status* status) {
  if (!result.ok() && api().code(status) == kOk)
    api().set_status(status, kInvalidArgument, result.text().c_str());
}

/// Sets the shape of output `i`. Returns false if there is no such output.
bool set_shape(Inference* inference, int i, const ShapeHandle& shape) {
  const Result result;
  api().inference_output(inference, i, shape.get(), result);
  return result.ok();
}

/// Calls `infer(i)` for each tensor. Tensors are the first inputs, and each has an output.
template <class Infer>
void for_each_tensor(Inference* inference, Infer infer) {
  const auto inputs = static_cast<int>(api().inference_inputs(inference));
  const ShapeHandle any = new_shape();
  for (int i = 0; i < inputs && set_shape(inference, i, any); ++i) infer(i);
}

void same_as_inputs(Inference* inference, Status* status) {
  for_each_tensor(inference, [&](int i) {
    const ShapeHandle shape = new_shape();
    const Result got, set;
    api().inference_input(inference, i, shape.get(), got);
    api().inference_output(inference, i, shape.get(), set);
    for (const Result* result : {&got, &set}) keep(*result, status);
  });
}

/// Sets the shape of output `i` to that of input `i` with an unknown number of rows.
void other_rows(Inference* inference, int i, Status* status) {
  const ShapeHandle input = new_shape(), rest = new_shape(), output = new_shape();
  const ShapeHandle rows(api().vector(inference, kUnknownSize));
  const Result got, ranked, cut, joined, set;
  api().inference_input(inference, i, input.get(), got);
  api().with_rank_at_least(inference, input.get(), 1, input.get(), ranked);
  if (ranked.ok()) {
    api().subshape(inference, input.get(), 1, std::numeric_limits<int64_t>::max(), rest.get(), cut);
    api().concatenate(inference, rows.get(), rest.get(), output.get(), joined);
    api().inference_output(inference, i, output.get(), set);
  }
  for (const Result* result : {&got, &ranked, &cut, &joined, &set}) keep(*result, status);
}

void inputs_with_other_rows(Inference* inference, Status* status) {
  for_each_tensor(inference, [&](int i) { other_rows(inference, i, status); });
}

void rows_and_splits(Inference* inference, Status* status) {
  other_rows(inference, 0, status);
  const ShapeHandle splits(api().vector(inference, kUnknownSize));
  const Result result;
  api().inference_output(inference, 1, splits.get(), result);
  keep(result, status);
}

void scalar(Inference* inference, Status* status) {
  const ShapeHandle shape(api().scalar(inference));
  const Result result;
  api().inference_output(inference, 0, shape.get(), result);
  keep(result, status);
}

void nothing(Inference*, Status*) {}

void (*shapes_of(hvd_operation_kind kind))(Inference*, Status*) {
  switch (kind) {
    case HVD_ALLREDUCE:
    case HVD_BROADCAST:
      return same_as_inputs;
    case HVD_ALLGATHER:
    case HVD_REDUCESCATTER:
      return inputs_with_other_rows;
    case HVD_ALLTOALL:
      return rows_and_splits;
    case HVD_JOIN:
      return scalar;
    case HVD_BARRIER:
    case HVD_MESSAGE:  // no node sends one
      break;
  }
  return nothing;
}

/// The types that the runtime supports. It checks per operation which of them are allowed.
constexpr char kTypes[] =
    "T: {bool, uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double}";

void add_tensors(OpBuilder* builder, const Collective& op) {
  if (op.kind == HVD_BARRIER) return;
  if (op.kind == HVD_JOIN) return api().add_output(builder, "last_joined: int32");
  api().add_attribute(builder, kTypes);
  if (op.grouped) api().add_attribute(builder, "N: int >= 1");
  api().add_input(builder, op.grouped ? "tensors: N * T" : "tensor: T");
  api().add_output(builder, op.grouped ? "outputs: N * T" : "output: T");
  if (op.kind != HVD_ALLTOALL) return;
  api().add_input(builder, "splits: int32");  // an empty vector: equal parts
  api().add_output(builder, "received_splits: int32");
}

/// Adds an optional input: a list of zero or one elements.
void add_optional(OpBuilder* builder, const std::string& name, const std::string& count,
                  const std::string& type) {
  api().add_attribute(builder, (count + ": int >= 0").c_str());
  api().add_input(builder, (name + ": " + count + " * " + type).c_str());
}

void add_process_set(OpBuilder* builder) {
  add_optional(builder, "process_set", "num_process_sets", "int32");  // default: the world
}

/// Adds the arguments that may change per call, in the order in which arguments.h reads them.
void add_arguments(OpBuilder* builder, const Collective& op) {
  if (op.kind == HVD_BROADCAST) api().add_input(builder, "root_rank: int32");
  if (reduces(op.kind)) add_optional(builder, "factors", "num_factors", "double");
  add_process_set(builder);
  add_optional(builder, "tensor_name", "num_names", "uint8");  // UTF-8; default: name of the node
}

void add_attributes(OpBuilder* builder, const Collective& op) {
  if (reduces(op.kind)) api().add_attribute(builder, "reduce_op: int = 1");
  api().add_attribute(builder, "ignore_name_scope: bool = false");
  api().add_attribute(builder, "by_iteration: bool = false");
  api().add_attribute(builder, "blocking: bool = false");
}

std::string registered(OpBuilder* builder) {
  const Result result;
  api().register_op(builder, result);
  return result.text();
}

std::string define(const Collective& op) {
  OpBuilder* builder = api().new_op(op.name);
  add_tensors(builder, op);
  add_arguments(builder, op);
  add_attributes(builder, op);
  api().set_stateful(builder, true);
  api().set_shape_inference(builder, shapes_of(op.kind));
  return registered(builder);
}

std::string define_answer(const char* name, bool about_a_set) {
  OpBuilder* builder = api().new_op(name);
  api().add_output(builder, "answer: int32");
  if (about_a_set) add_process_set(builder);
  api().set_stateful(builder, true);
  api().set_shape_inference(builder, scalar);
  return registered(builder);
}

}  // namespace

std::string register_ops() {
  std::string problems;
  for (const Collective& op : kCollectives) problems += define(op);
  for (const char* name : {kLocalRank, kLocalSize}) problems += define_answer(name, false);
  for (const char* name : {kRank, kSize, kIncluded}) problems += define_answer(name, true);
  return problems;
}

}  // namespace hvd::tf
