#include "adapters/tensorflow/kernels.h"

#include <cstddef>
#include <string_view>
#include <utility>

#include "adapters/tensorflow/arguments.h"
#include "adapters/tensorflow/c_api.h"
#include "adapters/tensorflow/call.h"
#include "adapters/tensorflow/done.h"
#include "adapters/tensorflow/node.h"
#include "adapters/tensorflow/op.h"

namespace hvd::tf {
namespace {

constexpr char kHost[] = "CPU", kGpu[] = "GPU";

/// Arguments and outputs that are in host memory on every device.
constexpr const char* kOnHost[] = {"splits",      "root_rank",       "factors",    "process_set",
                                   "tensor_name", "received_splits", "last_joined"};

std::string registered(const char* name, KernelBuilder* builder) {
  const Result result;
  api().register_kernel(name, builder, result);
  return result.text();
}

// Operations.

/// Creates the Node of a kernel. TensorFlow needs a plain function per op.
template <size_t index>
void* create(Construction* construction) {
  auto node = read_node(kCollectives[index], construction);
  return node ? new Node(std::move(*node)) : nullptr;
}

void compute(void* node, Execution* execution, DoneCallback* done) {
  start_call(*static_cast<const Node*>(node), execution, Place::host, Done(done));
}

void compute_on_gpu(void* node, Execution* execution, DoneCallback* done) {
  start_call(*static_cast<const Node*>(node), execution, Place::gpu, Done(done));
}

void destroy(void* node) { delete static_cast<Node*>(node); }

template <size_t... indices>
std::string register_collectives(std::index_sequence<indices...>) {
  std::string problems;
  ((problems += registered(kCollectives[indices].name,
                           api().new_async_kernel(kCollectives[indices].name, kHost,
                                                  create<indices>, compute, destroy))),
   ...);
  return problems;
}

bool has_argument(const Collective& op, std::string_view argument) {
  if (argument == "last_joined") return op.kind == HVD_JOIN;
  if (argument == "splits" || argument == "received_splits") return op.kind == HVD_ALLTOALL;
  if (argument == "root_rank") return op.kind == HVD_BROADCAST;
  return argument != "factors" || reduces(op.kind);
}

template <size_t index>
std::string register_on_gpu() {
  const Collective& op = kCollectives[index];
  KernelBuilder* const builder =
      api().new_async_kernel(op.name, kGpu, create<index>, compute_on_gpu, destroy);
  for (const char* argument : kOnHost)
    if (has_argument(op, argument)) gpu_api().host_memory(builder, argument);
  return registered(op.name, builder);
}

template <size_t... indices>
std::string register_on_gpu(std::index_sequence<indices...>) {
  std::string problems;
  ((problems += register_on_gpu<indices>()), ...);
  return problems;
}

// Queries.

void answer(Execution* execution, hvd_status status, int32_t value) {
  if (status != HVD_OK) {
    const Code code = status == HVD_NOT_INITIALIZED ? kFailedPrecondition : kInvalidArgument;
    return api().execution_failed(execution, Result(code, hvd_last_error()));
  }
  const Result result;
  const TensorHandle output(api().allocate_output(execution, 0, kInt32, nullptr, 0, 0, result));
  if (!result.ok()) return api().execution_failed(execution, result);
  *static_cast<int32_t*>(api().tensor_data(output.get())) = value;
}

template <int32_t hvd_world::*field>
void answer_about_the_job(void*, Execution* execution) {
  hvd_world world{};
  const hvd_status status = hvd_get_world(&world);
  answer(execution, status, world.*field);
}

/// Queries a process set. The output is `value_of(size, rank)`.
template <class ValueOf>
void answer_about_a_set(Execution* execution, ValueOf value_of) {
  int32_t id = 0, size = 0, rank = 0;
  if (const std::string problem = read_process_set(execution, id); !problem.empty())
    return api().execution_failed(execution, Result(kInvalidArgument, problem));
  const hvd_status status = hvd_get_process_set(id, &size, &rank);
  answer(execution, status, value_of(size, rank));
}

void answer_rank(void*, Execution* execution) {
  answer_about_a_set(execution, [](int32_t, int32_t rank) { return rank; });
}

void answer_size(void*, Execution* execution) {
  answer_about_a_set(execution, [](int32_t size, int32_t) { return size; });
}

void answer_included(void*, Execution* execution) {
  answer_about_a_set(execution, [](int32_t, int32_t rank) { return rank < 0 ? 0 : 1; });
}

void* create_nothing(Construction*) { return nullptr; }
void destroy_nothing(void*) {}

using Compute = void (*)(void*, Execution*);

/// A kernel for one kind of device. Its answer is in host memory.
std::string register_answer(const char* device, const char* name, Compute compute_answer,
                            bool about_a_set) {
  KernelBuilder* const builder =
      api().new_kernel(name, device, create_nothing, compute_answer, destroy_nothing);
  if (device == kGpu) {
    gpu_api().host_memory(builder, "answer");
    if (about_a_set) gpu_api().host_memory(builder, "process_set");
  }
  return registered(name, builder);
}

std::string register_answers(const char* device) {
  return register_answer(device, kLocalRank, answer_about_the_job<&hvd_world::local_rank>, false) +
         register_answer(device, kLocalSize, answer_about_the_job<&hvd_world::local_size>, false) +
         register_answer(device, kRank, answer_rank, true) +
         register_answer(device, kSize, answer_size, true) +
         register_answer(device, kIncluded, answer_included, true);
}

constexpr auto kAll = std::make_index_sequence<kCollectives.size()>();

}  // namespace

std::string register_kernels() { return register_collectives(kAll) + register_answers(kHost); }
std::string register_gpu_kernels() { return register_on_gpu(kAll) + register_answers(kGpu); }

}  // namespace hvd::tf
