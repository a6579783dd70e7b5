// Assigns slots to the operations of one group and selects the slot to retire. Owned by the Root;
// all other machines learn the slots from its Verdicts.
#pragma once

#include <deque>
#include <list>
#include <unordered_map>
#include <unordered_set>

#include "core/negotiate/options.h"
#include "core/negotiate/slot_table.h"

namespace hvd {

class SlotAssigner {
 public:
  /// `first`: number of the first slot. When the numbers are used up, no further slots are assigned
  /// and new names are sent in full.
  SlotAssigner(uint32_t capacity, const Rules& rules, SlotNumber first = 0)
      : capacity_(capacity), rules_(rules), next_(first) {}

  /// Returns how a Verdict encodes an operation that runs now: by its slot, with a new slot, or in
  /// full without a slot.
  Item spell(SharedSignature signature);
  /// Number of entries of the largest table; at most capacity + 1.
  size_t remembered() const;

 private:
  bool is_first_use(const NameHash& name);
  SlotNumber make_room(SlotNumber outdated);
  void touch(SlotNumber slot);

  uint32_t capacity_;
  Rules rules_;
  SlotTable table_;
  SlotNumber next_;
  std::list<SlotNumber> by_use_;  ///< least recently ordered first
  std::unordered_map<SlotNumber, std::list<SlotNumber>::iterator> place_;
  std::unordered_set<NameHash> used_once_;
  std::deque<NameHash>
      used_once_order_;  ///< oldest first; may contain names that have been used again since
};

}  // namespace hvd
