// The properties of an operation that all ranks must agree on before it runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "core/base/operation.h"
#include "core/base/shape.h"

namespace hvd {

using GroupNumber =
    uint32_t;  ///< increases over the job, never reused; a user's process-set id maps to it
using SlotNumber = uint32_t;  ///< increases within a group, never reused
inline constexpr SlotNumber kNoSlot = ~SlotNumber{0};
inline constexpr GroupNumber kWorldGroup = 0;

inline constexpr size_t kMaxNameBytes = 4096;
inline constexpr size_t kMaxTensorsInGroup = 65536;
inline constexpr size_t kMaxDimensions = 64;
inline constexpr int64_t kFreeDimension = -1;  ///< a dimension that may differ between ranks

using Shapes = SmallVector<Shape, 1>;

/// A value. A grouped operation is one Signature with a list of shapes, hence one slot and one
/// batch. For allgather and alltoall the first dimension is kFreeDimension, since it may differ
/// between ranks.
struct Signature {
  NameHash name{};
  Operation operation{};           ///< the root is a global rank
  Shapes shapes{};                 ///< one per tensor; barrier: none
  std::vector<int32_t> members{};  ///< add_process_set, message: global ranks, ascending
  GroupNumber target = 0;          ///< remove_process_set
  bool fuse_with_others = true;    ///< false for a group under HOROVOD_DISABLE_GROUP_FUSION

  bool operator==(const Signature&) const = default;

  /// Payload bytes for the fusion threshold; for allgather, the bytes of one row.
  uint64_t payload_bytes() const;
  int64_t elements() const;  ///< sum over `shapes`
};

/// An immutable Signature shared by reference. Negotiated operations refer to the value in the slot
/// table, so that repeated operations copy no shapes.
class SharedSignature {
 public:
  SharedSignature() = default;  ///< a default Signature
  SharedSignature(Signature value) : value_(std::make_shared<const Signature>(std::move(value))) {}

  const Signature& operator*() const { return value_ ? *value_ : nothing(); }
  const Signature* operator->() const { return &**this; }
  operator const Signature&() const { return **this; }

  friend bool operator==(const SharedSignature& a, const SharedSignature& b) {
    return a.value_ == b.value_ || *a == *b;
  }
  friend bool operator==(const SharedSignature& a, const Signature& b) { return *a == b; }

 private:
  static const Signature& nothing();

  std::shared_ptr<const Signature> value_;
};

/// Identifies a stream of messages: its name and its two ranks, ascending.
using MessageKey = std::pair<NameHash, std::vector<int32_t>>;

inline bool is_message(const Signature& signature) {
  return signature.operation.kind == OperationKind::message;
}
inline MessageKey message_key(const Signature& message) { return {message.name, message.members}; }

/// Returns whether two operations may run in one batch.
bool may_fuse(const Signature& a, const Signature& b);

}  // namespace hvd
