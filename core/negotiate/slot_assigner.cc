#include "core/negotiate/slot_assigner.h"

#include <algorithm>

namespace hvd {

Item SlotAssigner::spell(SharedSignature signature) {
  Item item;
  item.define = true;
  const SlotNumber had = table_.slot_of(signature->name);
  if (had != kNoSlot && *table_.find_live(had) == signature) {
    item.slot = had;  // the slot is sufficient
    item.define = false;
    touch(had);
    return item;
  }
  item.signature = std::move(signature);
  if (capacity_ == 0 || next_ == kNoSlot || (had == kNoSlot && is_first_use(item.signature->name)))
    return item;
  const SlotNumber retired = make_room(had);
  if (retired != kNoSlot) item.retire.push_back(retired);
  item.slot = rules_.slot_numbers_are_fresh || retired == kNoSlot ? next_++ : retired;
  table_.apply(item, SlotTable::Retired::forget);
  touch(item.slot);
  return item;
}

size_t SlotAssigner::remembered() const {
  return std::max({table_.live_count(), by_use_.size(), place_.size(), used_once_.size(),
                   used_once_order_.size()});
}

/// Returns whether a name is used for the first time. Names that are used only once get no slot and
/// so retire no other slot. The list of such names is bounded.
bool SlotAssigner::is_first_use(const NameHash& name) {
  if (used_once_.erase(name) != 0) return false;
  used_once_.insert(name);
  used_once_order_.push_back(name);
  if (used_once_order_.size() > capacity_) {
    used_once_.erase(used_once_order_.front());
    used_once_order_.pop_front();
  }
  return true;
}

/// Returns the slot to retire for a new one: the name's outdated slot, or the least recently
/// ordered slot if all are in use.
SlotNumber SlotAssigner::make_room(SlotNumber outdated) {
  SlotNumber victim = outdated;
  if (victim == kNoSlot && table_.live_count() >= capacity_) victim = by_use_.front();
  if (victim == kNoSlot) return kNoSlot;
  by_use_.erase(place_.at(victim));
  place_.erase(victim);
  return victim;
}

void SlotAssigner::touch(SlotNumber slot) {
  const auto found = place_.find(slot);
  if (found != place_.end()) {
    by_use_.splice(by_use_.end(), by_use_, found->second);
  } else {
    place_[slot] = by_use_.insert(by_use_.end(), slot);
  }
}

}  // namespace hvd
