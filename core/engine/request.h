// One submitted operation: what was asked, the memory it reads and writes, and how it ends. Never
// split, never found again by name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/handle.h"
#include "core/negotiate/signature.h"

namespace hvd {

/// An output that the runtime allocates.
struct Output {
  DType dtype = DType::uint8;
  Gathered gathered{};
};

/// What the caller holds on to: the completion, and what came of it. Written by the driver before
/// the Handle completes, read by the caller afterwards.
struct Operation {
  Handle handle;
  std::vector<Output> outputs{};  ///< allgather: one a tensor; alltoall: tensor, received splits
  int32_t number = kNoRank;       ///< join: the rank that joined last; add_process_set: its id
};

/// Owned by the engine from submission to completion.
struct Request {
  enum class Kind : uint8_t { operation, join, shutdown };
  Kind kind = Kind::operation;
  GroupNumber group = kWorldGroup;
  std::string name;
  Signature signature;
  std::vector<BatchTensor> tensors;
  std::shared_ptr<Operation> operation;
  std::function<void()> release;              ///< lets go of the caller's memory; called once
  std::function<void(const Outcome&)> ended;  ///< called once, before the Handle completes
  bool has_handle = true;  ///< somebody may wait, and drive; else the engine thread has to
};

}  // namespace hvd
