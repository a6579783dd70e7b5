// Gives the operations of one group their slots, and decides which slot makes room. Owned by the
// Root; everybody else learns the slots from its Verdicts.
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
  /// `first`: the number of the first slot. When the numbers are used up, no slot is made any more
  /// and new names go in full.
  SlotAssigner(uint32_t capacity, const Rules& rules, SlotNumber first = 0)
      : capacity_(capacity), rules_(rules), next_(first) {}

  /// How a Verdict spells an operation that runs now: by its slot, with a new slot, or in full
  /// without one.
  Item spell(SharedSignature signature);
  /// Entries of the largest table; at most one above the capacity.
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
  std::deque<NameHash> used_once_order_;  ///< oldest first; some have meanwhile been used again
};

}  // namespace hvd
