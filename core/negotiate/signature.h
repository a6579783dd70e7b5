// What all ranks must agree on before an operation runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/hash.h"
#include "core/base/shape.h"

namespace hvd {

using GroupNumber =
    uint32_t;  ///< counts up over the job, never reused; a user's process-set id maps to it
using SlotNumber = uint32_t;  ///< counts up within a group, never reused
inline constexpr SlotNumber kNoSlot = ~SlotNumber{0};
inline constexpr GroupNumber kWorldGroup = 0;

inline constexpr size_t kMaxNameBytes = 4096;
inline constexpr size_t kMaxTensorsInGroup = 65536;
inline constexpr size_t kMaxDimensions = 64;
inline constexpr int64_t kFreeDimension = -1;  ///< a dimension that ranks need not agree on

enum class OperationKind : uint8_t {
  allreduce,
  allgather,
  broadcast,
  alltoall,
  reducescatter,
  barrier,
  add_process_set,
  remove_process_set,
};
inline constexpr OperationKind kLastOperationKind = OperationKind::remove_process_set;
std::string_view name_of(OperationKind kind);

/// -1 is host memory; GPUs are told apart from it, not from each other (mismatch rule 10).
enum class DeviceKind : uint8_t { host, gpu };
std::string_view name_of(DeviceKind device);

using Shapes = SmallVector<Shape, 1>;

/// A value. A grouped operation is one Signature with a list of shapes, hence one slot and one
/// batch. For allgather and alltoall the first dimension, which ranks need not agree on, is
/// kFreeDimension.
struct Signature {
  NameHash name{};
  OperationKind kind = OperationKind::allreduce;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  DeviceKind device = DeviceKind::host;
  double prescale = 1.0;
  double postscale = 1.0;
  int32_t root = 0;                ///< broadcast: global rank
  Shapes shapes{};                 ///< one a tensor; barrier: none
  std::vector<int32_t> members{};  ///< add_process_set: global ranks, ascending
  GroupNumber target = 0;          ///< remove_process_set
  bool fuse_with_others = true;    ///< false for a group under HOROVOD_DISABLE_GROUP_FUSION

  bool operator==(const Signature&) const = default;

  /// Bytes of payload that packing counts; for allgather, of one row.
  uint64_t payload_bytes() const;
  int64_t elements() const;  ///< sum over `shapes`
};

/// A Signature that is passed from hand to hand and never changes: one value in memory, however
/// many refer to it. What is agreed again refers to the value in the table of slots, so that an
/// operation of the steady state copies no shapes.
class SharedSignature {
 public:
  SharedSignature() = default;  ///< the default one
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

/// True for kinds that run together with others of equal dtype, op, device and scaling.
bool is_fusable(OperationKind kind);
/// True for kinds that change the groups at their place in the stream and run nothing.
bool is_control(OperationKind kind);
bool may_fuse(const Signature& a, const Signature& b);

}  // namespace hvd
