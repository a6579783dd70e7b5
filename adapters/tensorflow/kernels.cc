#include "adapters/tensorflow/kernels.h"

#include <cstddef>
#include <utility>

#include "adapters/tensorflow/c_api.h"
#include "adapters/tensorflow/call.h"
#include "adapters/tensorflow/done.h"
#include "adapters/tensorflow/node.h"
#include "adapters/tensorflow/op.h"

namespace hvd::tf {
namespace {

constexpr char kDevice[] = "CPU";

std::string registered(const char* name, KernelBuilder* builder) {
  const Result result;
  api().register_kernel(name, builder, result);
  return result.text();
}

// Operations.

/// TensorFlow calls plain functions: one for each op makes what all others work on.
template <size_t index>
void* create(Construction* construction) {
  auto node = read_node(kCollectives[index], construction);
  return node ? new Node(std::move(*node)) : nullptr;
}

void compute(void* node, Execution* execution, DoneCallback* done) {
  start_call(*static_cast<const Node*>(node), execution, copy_of(done));
}

void destroy(void* node) { delete static_cast<Node*>(node); }

template <size_t... indices>
std::string register_collectives(std::index_sequence<indices...>) {
  std::string problems;
  ((problems += registered(kCollectives[indices].name,
                           api().new_async_kernel(kCollectives[indices].name, kDevice,
                                                  create<indices>, compute, destroy))),
   ...);
  return problems;
}

// Answers.

struct Question {
  int32_t process_set = 0;
};

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

void answer_rank(void* question, Execution* execution) {
  int32_t size = 0, rank = 0;
  const int32_t id = static_cast<Question*>(question)->process_set;
  const hvd_status status = hvd_get_process_set(id, &size, &rank);
  answer(execution, status, rank);
}

void answer_size(void* question, Execution* execution) {
  int32_t size = 0, rank = 0;
  const int32_t id = static_cast<Question*>(question)->process_set;
  const hvd_status status = hvd_get_process_set(id, &size, &rank);
  answer(execution, status, size);
}

void answer_included(void* question, Execution* execution) {
  int32_t size = 0, rank = 0;
  const int32_t id = static_cast<Question*>(question)->process_set;
  const hvd_status status = hvd_get_process_set(id, &size, &rank);
  answer(execution, status, rank < 0 ? 0 : 1);
}

void* create_question(Construction* construction) {
  const auto process_set = read_process_set(construction);
  return process_set ? new Question{*process_set} : nullptr;
}

void* create_nothing(Construction*) { return nullptr; }
void destroy_question(void* question) { delete static_cast<Question*>(question); }

using Compute = void (*)(void*, Execution*);

std::string register_answer(const char* name, Compute compute_answer) {
  return registered(
      name, api().new_kernel(name, kDevice, create_nothing, compute_answer, destroy_question));
}

std::string register_answer_about_a_set(const char* name, Compute compute_answer) {
  return registered(
      name, api().new_kernel(name, kDevice, create_question, compute_answer, destroy_question));
}

}  // namespace

std::string register_kernels() {
  return register_collectives(std::make_index_sequence<kCollectives.size()>()) +
         register_answer(kLocalRank, answer_about_the_job<&hvd_world::local_rank>) +
         register_answer(kLocalSize, answer_about_the_job<&hvd_world::local_size>) +
         register_answer_about_a_set(kRank, answer_rank) +
         register_answer_about_a_set(kSize, answer_size) +
         register_answer_about_a_set(kIncluded, answer_included);
}

}  // namespace hvd::tf
