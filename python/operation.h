// The parameters of an operation of Python, except its name and its tensors.
#pragma once

#include <cstdint>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "horovod/horovod.h"

namespace hvd::python {

/// Immutable, so one object can be used for many calls.
struct Operation {
  int kind;
  int op = HVD_SUM;
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;
  int process_set = 0;
  std::optional<std::vector<int32_t>> splits{};
  int receiver = 0;
  double timeout = 0;
  std::optional<hvd_dtype> sent_as{};

  static void make(Operation* made, int kind, int op, double prescale, double postscale, int root,
                   int process_set, std::optional<std::vector<int32_t>> splits, int receiver,
                   double timeout, std::optional<int> sent_as) {
    new (made) Operation{
        kind, op, prescale, postscale, root, process_set, std::move(splits), receiver, timeout};
    if (sent_as) made->sent_as = static_cast<hvd_dtype>(*sent_as);
  }

  /// Whether a tensor of this type and device is converted before it is sent.
  bool converts(const hvd_tensor& tensor) const {
    return sent_as.has_value() && tensor.dtype == HVD_FLOAT32 && tensor.device.type != HVD_HOST;
  }

  bool reduces() const { return kind == HVD_ALLREDUCE || kind == HVD_REDUCESCATTER; }

  hvd_request request(const char* name) const {
    hvd_request request{};
    request.operation = {static_cast<hvd_operation_kind>(kind),
                         static_cast<hvd_reduce_op>(op),
                         prescale,
                         postscale,
                         root,
                         receiver};
    request.name = name;
    request.process_set = process_set;
    request.timeout_seconds = timeout;
    static constexpr int32_t kNoSplits = 0;
    if (splits) {  // an empty list differs from None
      request.splits = splits->empty() ? &kNoSplits : splits->data();
      request.split_count = static_cast<int32_t>(splits->size());
    }
    return request;
  }
};

}  // namespace hvd::python
