#include "core/bootstrap/card_table.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "core/transport/store.h"

namespace hvd {
namespace {

size_t peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) * KiB;
}

TEST(CardTable, SurvivesTheWireWithoutWhatWasAgreed) {
  PeerCard card;
  card.rank = 1;
  card.hostname = "h";
  card.agreed = "A=1";
  const CardTable table = read_card_table(to_bytes({Code::timed_out, 1, "why", {card}}));
  EXPECT_EQ(table.code, Code::timed_out);
  EXPECT_EQ(table.rank, 1);
  EXPECT_EQ(table.reason, "why");
  card.agreed.clear();
  EXPECT_EQ(table.cards, std::vector{card});
}

/// As many cards as a count may say, and none of them.
TEST(CardTable, ThatNamesMoreCardsThanItHoldsTakesNoMemory) {
  Writer table;
  table.put(Code::ok);
  table.put(int32_t{kNoRank});
  table.put_text("");
  table.put_count(kMaxStoreValueBytes);
  const size_t before = peak_memory_bytes();
  EXPECT_THROW(read_card_table(table.take()), Error);
  EXPECT_LT(peak_memory_bytes(), before + 64 * MiB);
}

}  // namespace
}  // namespace hvd
