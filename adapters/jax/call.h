// One execution of the custom call: the leaves of a pytree go through one collective operation.
#pragma once

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

/// Used by one thread at a time. The memory of the buffers belongs to XLA and stays valid until the
/// future of the frame is complete.
class Call {
 public:
  explicit Call(const Frame& frame);

  /// Runs the operation on all leaves and blocks until it has ended on this rank.
  Outcome run() const;

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
  Outcome finish(const std::vector<Group>& groups, const std::vector<hvd_handle>& handles) const;
  Outcome finish_one(const Group& group, hvd_handle handle) const;
  Outcome take_outputs(const Group& group, hvd_handle handle) const;
  Outcome copy_output(const Leaf& leaf, const hvd_tensor& output) const;
  std::string described() const;

  Arguments arguments_;
  std::vector<Leaf> leaves_;
};

}  // namespace hvd::xla
