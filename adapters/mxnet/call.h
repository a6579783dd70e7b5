// One operation: from its push to MXNet's engine to its end there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "adapters/common/completions.h"
#include "adapters/mxnet/c_api.h"
#include "adapters/mxnet/request.h"
#include "adapters/mxnet/turns.h"
#include "horovod/horovod.h"

namespace hvd::mxnet {

/// The operations of this process, in the order of the program.
Turns& turns();
/// The threads that tell the engine that operations have ended. What follows an operation may run
/// there, and may wait for Python's GIL, so it cannot be the progress thread.
adapter::Completions& completions();

/// Owned by MXNet's engine after push(). The engine runs it on a thread of its own when all earlier
/// operations on its arrays have ended, and destroys it after its end. If one of these has failed,
/// the engine destroys it without running it.
class Call {
 public:
  /// Pushes an operation. Does not wait for it. Returns the reason if it cannot be pushed, "" if it
  /// is.
  static std::string push(const hvd_mxnet_request& request);
  ~Call();

 private:
  struct Tensor {
    ArrayHandle input;
    ArrayHandle output;  ///< empty: the input
    std::vector<int64_t> shape{};
    hvd_dtype dtype{};
    Array* written() const { return output ? output.get() : input.get(); }
  };
  /// For the engine.
  struct Dependencies {
    std::vector<Array*> read, written;
  };

  explicit Call(const hvd_mxnet_request& request);

  std::string take_arrays(const hvd_mxnet_request& request);
  static std::string take_array(Array* array, Tensor& tensor);
  Dependencies dependencies() const;
  void start(const Callback& ended);
  void submit();
  std::string submit_tensors();
  void end(hvd_status status, const std::string& text);
  void end_with(const std::string& failure);

  static void run1(RunContext*, Callback* ended, void* call);
  static void run2(RunContext*, Callback* started, Callback* ended, void* call);
  static void end_elsewhere(void* call, const hvd_ending* ending);

  const hvd_operation operation_;
  const Turns::Key key_;  ///< process set and name
  std::vector<Tensor> tensors_;
  bool has_turn_ = false;  ///< is in turns()
  Callback ended_{};
};

}  // namespace hvd::mxnet
