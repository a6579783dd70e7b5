// A submitted operation: its parameters, its memory and its completion.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/handle.h"
#include "core/negotiate/signature.h"

namespace hvd {

/// An output that the runtime allocates.
struct Output {
  DType dtype = DType::uint8;
  Gathered gathered{};
};

/// The result of a batch on a device. Shared by its operations. Any thread may call the functions,
/// except lose().
class DeviceResult {
 public:
  /// `point`: see Run::result().
  explicit DeviceResult(std::shared_ptr<const DevicePoint> point) : point_(std::move(point)) {}

  /// As DevicePoint::delay(). Throws the error of lose().
  void delay(void* stream) const {
    const bool is_there = point_->reached();  // tested first: work that is given up ends, too
    if (is_lost_.load(std::memory_order_acquire)) fail(why_.code, why_.text, why_.rank);
    if (!is_there) point_->delay(stream);
  }
  bool reached() const { return point_->reached(); }
  /// Makes the result invalid. The holder of the progress token calls it once, before the device
  /// gives up the work.
  void lose(Outcome why) {
    why_ = std::move(why);
    is_lost_.store(true, std::memory_order_release);
  }

 private:
  const std::shared_ptr<const DevicePoint> point_;
  Outcome why_{};
  std::atomic<bool> is_lost_{false};  ///< release by lose(), acquire by delay()
};

/// The part of an operation that the caller keeps: the handle and the results. The progress engine
/// writes it before the Handle completes; the caller reads it afterwards.
struct Completion {
  Handle handle;
  std::shared_ptr<const DeviceResult> result{};  ///< nullptr: in host memory, or complete
  std::vector<Output> outputs{};  ///< allgather: one per tensor; alltoall: tensor, received splits
  int32_t number = kNoRank;       ///< join: the rank that joined last; add_process_set: its id
};

/// Owned by the engine from submission to completion.
struct Request {
  GroupNumber group = kWorldGroup;
  std::string name;
  Signature signature;
  std::vector<BatchTensor> tensors;
  std::shared_ptr<Completion> completion;
  std::function<void()> release;  ///< called once when the memory is no longer accessed; device
                                  ///< memory: moved to Batch::loans
  std::function<void(const Outcome&)> ended;  ///< called once: before the Handle completes, or
                                              ///< after it, when launched work is done
  std::function<void()> queued;  ///< called at most once, before the Handle completes, if launched
                                 ///< work is not done then
  /// How long it waits for other ranks; 0: without limit. Then the job ends.
  std::chrono::milliseconds timeout{0};
  std::optional<TimePoint> expires{};  ///< from acceptance, if it has a timeout
  TimePoint submitted{};               ///< when the engine accepted it
  bool has_handle = true;  ///< a thread may wait for it and drive; if not, the engine thread drives
  bool ends_job = false;   ///< a request to end the job, not an operation
  bool is_launched = false;  ///< its Handle is complete, but work of it is queued on a device

  bool joins() const { return signature.operation.kind == OperationKind::join; }
};

}  // namespace hvd
