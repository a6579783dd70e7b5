#include "adapters/tensorflow/arguments.h"

#include <cstddef>
#include <span>
#include <vector>

namespace hvd::tf {
namespace {

/// Reads consecutive inputs up to the first error.
class Inputs {
 public:
  Inputs(Execution* execution, int first) : execution_(execution), next_(first) {}

  /// Returns the next input; valid for the lifetime of this object. Returns {} on an error.
  template <class T>
  std::span<const T> values() {
    const std::span<const std::byte> all = bytes();
    return {reinterpret_cast<const T*>(all.data()), all.size() / sizeof(T)};
  }

  /// Reads an input of exactly `count` values. `what`: its name for error texts.
  template <class T>
  std::span<const T> values(size_t count, const char* what) {
    const std::span<const T> all = values<T>();
    if (all.size() == count || !problem_.empty()) return all;
    problem_ = std::string(what) + " must have " + std::to_string(count) + " elements, but has " +
               std::to_string(all.size());
    return {};
  }

  int32_t integer(const char* what) {
    const std::span<const int32_t> found = values<int32_t>(1, what);
    return found.empty() ? 0 : found[0];
  }

  const std::string& problem() const { return problem_; }

 private:
  std::span<const std::byte> bytes() {
    Tensor* tensor = nullptr;
    const Result result;
    api().get_input(execution_, next_++, &tensor, result);
    read_.emplace_back(tensor);
    if (!result.ok()) problem_ = result.text();
    if (!problem_.empty()) return {};
    return {static_cast<const std::byte*>(api().tensor_data(tensor)), api().tensor_bytes(tensor)};
  }

  Execution* execution_;
  int next_;
  std::vector<TensorHandle> read_;
  std::string problem_;
};

/// Returns a suffix that makes the name of a node in a loop of a v1 graph unique per iteration.
std::string iteration_of(Execution* execution) {
  const uint64_t frame = api().frame_id(execution);  // differs per iteration of outer loops
  const int64_t iteration = api().iteration_id(execution);
  if (frame == kRootFrame || iteration < 0) return {};
  return "/iteration_" + std::to_string(frame) + "_" + std::to_string(iteration);
}

std::string own_name(const Node& node, Execution* execution) {
  return node.by_iteration ? node.name + iteration_of(execution) : node.name;
}

}  // namespace

std::string read_arguments(const Node& node, Execution* execution, Arguments& arguments) {
  Inputs inputs(execution, node.tensors);
  if (node.op.kind == HVD_ALLTOALL) inputs.values<int32_t>();  // skips the splits
  if (node.op.kind == HVD_BROADCAST) arguments.root = inputs.integer("root_rank");
  if (node.has_factors) {
    const std::span<const double> factors = inputs.values<double>(2, "factors");
    if (!factors.empty()) arguments.prescale = factors[0], arguments.postscale = factors[1];
  }
  if (node.has_process_set) arguments.process_set = inputs.integer("process_set");
  if (node.has_name) {
    const std::span<const char> name = inputs.values<char>();
    arguments.name = node.shown(std::string(name.begin(), name.end()));
  } else {
    arguments.name = own_name(node, execution);
  }
  return inputs.problem();
}

std::string read_process_set(Execution* execution, int32_t& process_set) {
  Inputs inputs(execution, 0);
  if (api().num_inputs(execution) == 0) return {};
  process_set = inputs.integer("process_set");
  return inputs.problem();
}

}  // namespace hvd::tf
