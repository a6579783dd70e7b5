// Signatures for the negotiation tests.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/negotiate/messages.h"

namespace hvd {

inline Signature allreduce_of(const std::string& name, Shape shape = {4}) {
  Signature signature;
  signature.name = hash_name(name);
  signature.operation.dtype = DType::float32;
  signature.shapes = {std::move(shape)};
  return signature;
}

inline Signature barrier_of(const std::string& name) {
  Signature signature;
  signature.name = hash_name(name);
  signature.operation.kind = OperationKind::barrier;
  return signature;
}

inline Signature message_of(const std::string& name, int from, int to, Shape shape = {4}) {
  Signature signature = allreduce_of(name, std::move(shape));
  signature.operation.kind = OperationKind::message;
  signature.operation.root = from;
  signature.members = {std::min(from, to), std::max(from, to)};
  return signature;
}

inline Signature add_set_of(const std::string& name, std::vector<int32_t> members) {
  Signature signature;
  signature.name = hash_name(name);
  signature.operation.kind = OperationKind::add_process_set;
  signature.members = std::move(members);
  return signature;
}

inline Signature remove_set_of(const std::string& name, GroupNumber target) {
  Signature signature;
  signature.name = hash_name(name);
  signature.operation.kind = OperationKind::remove_process_set;
  signature.target = target;
  return signature;
}

/// An operation that runs now, with its signature and, unless kNoSlot, a new slot.
inline Item defines(const Signature& signature, SlotNumber slot = kNoSlot) {
  return {.slot = slot, .define = true, .signature = signature};
}

inline Item by_slot(SlotNumber slot) { return {.slot = slot}; }

inline Verdict batch_of(std::vector<Item> items, GroupNumber group = kWorldGroup,
                        uint64_t sequence = 1) {
  return {.group = group, .sequence = sequence, .items = std::move(items)};
}

inline Entry entry_by_slot(SlotNumber slot, int rank) {
  return {.slot = slot, .lowest = rank, .count = 1};
}

inline Entry entry_in_full(const Signature& signature, int rank, GroupNumber group = kWorldGroup) {
  return {.group = group,
          .opinions = {{.signature = signature, .rank = rank, .count = 1}},
          .lowest = rank,
          .count = 1};
}

}  // namespace hvd
