#include "core/negotiate/slot_table.h"

#include "core/base/assert.h"

namespace hvd {

void SlotTable::apply(const Item& item, Retired retired) {
  for (const SlotNumber slot : item.retire) {
    auto node = live_.extract(slot);
    HVD_ASSERT(!node.empty());
    ++retirements_;
    by_name_.erase(node.mapped()->name);
    if (retired == Retired::keep) kept_.emplace_back(slot, std::move(node.mapped()));
  }
  if (!item.define || item.slot == kNoSlot) return;
  const bool is_new = live_.emplace(item.slot, item.signature).second;
  HVD_ASSERT(is_new);
  by_name_[item.signature->name] = item.slot;
}

void SlotTable::forget_retired(uint32_t seen) {
  while (!kept_.empty() && retirements_ - kept_.size() < seen) kept_.pop_front();
}

const SharedSignature* SlotTable::find(SlotNumber slot) const {
  if (const SharedSignature* live = find_live(slot)) return live;
  for (const auto& [number, signature] : kept_) {
    if (number == slot) return &signature;
  }
  return nullptr;
}

const SharedSignature* SlotTable::find_live(SlotNumber slot) const {
  const auto found = live_.find(slot);
  return found == live_.end() ? nullptr : &found->second;
}

SlotNumber SlotTable::slot_of(const NameHash& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? kNoSlot : found->second;
}

}  // namespace hvd
