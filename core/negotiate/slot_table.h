// The slots of one group: a pure function of the verdicts seen, hence equal in Clients, Hubs and
// Root. A slot is immutable: defined once, retired once, its number never reused. Owned by the
// state machine that holds it.
#pragma once

#include <deque>
#include <unordered_map>
#include <utility>

#include "core/negotiate/messages.h"

namespace hvd {

class SlotTable {
 public:
  /// Hubs keep retired slots until every child has acknowledged them, because a child may still
  /// send a slot whose retirement it has not seen.
  enum class Retired : uint8_t { forget, keep };

  void apply(const Item& item, Retired retired);
  /// Drops the first `seen` retirements, which all children have acknowledged.
  void forget_retired(uint32_t seen);

  /// Returns the signature of a live or kept slot; nullptr otherwise.
  const SharedSignature* find(SlotNumber slot) const;
  const SharedSignature* find_live(SlotNumber slot) const;
  /// Returns the live slot of a name, or kNoSlot.
  SlotNumber slot_of(const NameHash& name) const;

  uint32_t retirements() const { return retirements_; }
  size_t live_count() const { return live_.size(); }
  size_t kept_count() const { return kept_.size(); }
  const std::unordered_map<SlotNumber, SharedSignature>& live() const { return live_; }

 private:
  std::unordered_map<SlotNumber, SharedSignature> live_;
  std::unordered_map<NameHash, SlotNumber> by_name_;
  std::deque<std::pair<SlotNumber, SharedSignature>>
      kept_;  ///< the most recently retired slots, oldest first
  uint32_t retirements_ = 0;
};

}  // namespace hvd
