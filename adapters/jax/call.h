// One execution of the custom call: the leaves of a pytree go through one collective operation.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "adapters/jax/arguments.h"
#include "adapters/jax/c_api.h"
#include "horovod/horovod.h"

namespace hvd::xla {

/// An error for XLA. `text` is empty on success.
struct Outcome {
  hvd_status status = HVD_OK;
  std::string text{};
};

/// Used by one thread at a time: submit(), then ends_within() if useful, then finish(). The memory
/// of the buffers belongs to XLA and stays valid until the handler has returned or the future of
/// the frame is complete.
class Call {
 public:
  explicit Call(const Frame& frame);

  /// Submits the operation on all leaves, or nothing on an error.
  Outcome submit();
  /// Makes progress until the operation has ended on this rank. Gives up after `patience` without
  /// progress. Returns whether it has ended.
  bool ends_within(std::chrono::microseconds patience) const;
  /// Blocks until the operation has ended on this rank. Returns the first error.
  Outcome finish() const;

 private:
  struct Leaf {
    void* input;
    void* output;
    std::vector<int64_t> input_shape, output_shape;
    hvd_dtype dtype;
  };
  /// Leaves that go as one operation of the runtime, by their indices.
  using Group = std::vector<size_t>;

  std::vector<Group> groups() const;
  Outcome finish_one(const Group& group, hvd_handle handle) const;
  Outcome take_outputs(const Group& group, hvd_handle handle) const;
  Outcome copy_output(const Leaf& leaf, const hvd_tensor& output) const;
  std::string described() const;

  Arguments arguments_;
  std::vector<Leaf> leaves_;
  std::vector<Group> groups_;
  std::vector<hvd_handle> handles_;  ///< of groups_, in the same order
};

}  // namespace hvd::xla
