#include "core/negotiate/slot_table.h"

#include <gtest/gtest.h>

#include "core/negotiate/slot_assigner.h"
#include "core/negotiate/testing.h"

namespace hvd {
namespace {

using Retired = SlotTable::Retired;

Item replaces(const Signature& signature, SlotNumber slot, SlotNumber retired) {
  Item item = defines(signature, slot);
  item.retire = {retired};
  return item;
}

TEST(SlotTable, KnowsASlotByNumberAndByName) {
  SlotTable table;
  table.apply(defines(allreduce_of("a"), 0), Retired::forget);
  EXPECT_EQ(*table.find(0), allreduce_of("a"));
  EXPECT_EQ(table.slot_of(hash_name("a")), 0u);
  EXPECT_EQ(table.slot_of(hash_name("b")), kNoSlot);
  EXPECT_EQ(table.find(1), nullptr);
}

TEST(SlotTable, ForgetsWhatRanWithoutASlot) {
  SlotTable table;
  table.apply(defines(allreduce_of("a")), Retired::forget);
  EXPECT_EQ(table.live_count(), 0u);
}

TEST(SlotTable, ReplacesTheSlotOfAChangedName) {
  SlotTable table;
  table.apply(defines(allreduce_of("a", {4}), 0), Retired::forget);
  table.apply(replaces(allreduce_of("a", {5}), 1, 0), Retired::forget);
  EXPECT_EQ(table.slot_of(hash_name("a")), 1u);
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.retirements(), 1u);
}

TEST(SlotTable, KeepsRetiredSlotsUntilTheyAreAcknowledged) {
  SlotTable table;
  table.apply(defines(allreduce_of("a"), 0), Retired::keep);
  table.apply(defines(allreduce_of("b"), 1), Retired::keep);
  table.apply(replaces(allreduce_of("c"), 2, 0), Retired::keep);
  table.apply(replaces(allreduce_of("d"), 3, 1), Retired::keep);
  EXPECT_EQ(*table.find(0), allreduce_of("a"));
  EXPECT_EQ(table.find_live(0), nullptr);
  table.forget_retired(1);
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(*table.find(1), allreduce_of("b"));
  table.forget_retired(2);
  EXPECT_EQ(table.kept_count(), 0u);
}

TEST(SlotTable, DiesOfARetirementOfAnUnknownSlot) {
  SlotTable table;
  EXPECT_DEATH(table.apply(replaces(allreduce_of("a"), 1, 0), Retired::forget), "internal error");
}

TEST(SlotTable, DiesOfASecondDefinitionOfASlot) {
  SlotTable table;
  table.apply(defines(allreduce_of("a"), 0), Retired::forget);
  EXPECT_DEATH(table.apply(defines(allreduce_of("b"), 0), Retired::forget), "internal error");
}

TEST(SlotAssigner, GivesASlotAtTheSecondUse) {
  SlotAssigner assigner(8, {});
  const Item first = assigner.spell(allreduce_of("a"));
  EXPECT_EQ(first.slot, kNoSlot);
  EXPECT_TRUE(first.define);
  const Item second = assigner.spell(allreduce_of("a"));
  EXPECT_EQ(second.slot, 0u);
  EXPECT_TRUE(second.define);
  const Item third = assigner.spell(allreduce_of("a"));
  EXPECT_EQ(third.slot, 0u);
  EXPECT_FALSE(third.define);
}

/// A name that was used twice.
Item settle(SlotAssigner& assigner, const std::string& name) {
  assigner.spell(allreduce_of(name));
  return assigner.spell(allreduce_of(name));
}

TEST(SlotAssigner, RetiresTheLeastRecentlyOrderedWhenFull) {
  SlotAssigner assigner(2, {});
  settle(assigner, "a");
  settle(assigner, "b");
  assigner.spell(allreduce_of("a"));
  const Item third = settle(assigner, "c");
  EXPECT_EQ(third.slot, 2u);
  EXPECT_EQ(third.retire, std::vector<SlotNumber>{1});
}

TEST(SlotAssigner, GivesAChangedNameANewSlotAtOnce) {
  SlotAssigner assigner(8, {});
  settle(assigner, "a");
  const Item changed = assigner.spell(allreduce_of("a", {7}));
  EXPECT_EQ(changed.slot, 1u);
  EXPECT_EQ(changed.retire, std::vector<SlotNumber>{0});
  EXPECT_EQ(changed.signature, allreduce_of("a", {7}));
}

TEST(SlotAssigner, LetsNamesThatNeverComeBackRetireNobody) {
  SlotAssigner assigner(1, {});
  settle(assigner, "a");
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(assigner.spell(allreduce_of("once" + std::to_string(i))).slot, kNoSlot);
  }
  EXPECT_FALSE(assigner.spell(allreduce_of("a")).define);
}

TEST(SlotAssigner, KeepsNothingWithoutCapacity) {
  SlotAssigner assigner(0, {});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(assigner.spell(allreduce_of("a")).slot, kNoSlot);
  }
}

TEST(SlotAssigner, SpellsInFullWhenTheNumbersAreUsedUp) {
  SlotAssigner assigner(2, {}, kNoSlot - 1);
  const auto spell_twice = [&](const std::string& name) {
    assigner.spell(allreduce_of(name));
    return assigner.spell(allreduce_of(name));
  };
  EXPECT_EQ(spell_twice("last").slot, kNoSlot - 1);
  EXPECT_EQ(spell_twice("late").slot, kNoSlot);
  const Item again = assigner.spell(allreduce_of("late"));
  EXPECT_TRUE(again.define && again.retire.empty());
  EXPECT_EQ(again.slot, kNoSlot);
  EXPECT_FALSE(assigner.spell(allreduce_of("last")).define) << "keeps its slot";
}

}  // namespace
}  // namespace hvd
