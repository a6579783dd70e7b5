#include "core/group/bootstrap/meeting.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/group/bootstrap/table.h"

namespace hvd {
namespace {

std::string card_key(uint32_t generation, int rank) {
  return store_key(generation, "card/" + std::to_string(rank));
}

std::vector<int> missing_ranks(Store& store, int size, uint32_t generation) {
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!store.peek(card_key(generation, rank))) missing.push_back(rank);
  }
  return missing;
}

std::string have_not_come(const std::vector<int>& ranks, std::chrono::seconds allowed) {
  return fmt::format("{} {} not come within {} s (HOROVOD_START_TIMEOUT)", ranks_text(ranks),
                     ranks.size() == 1 ? "has" : "have", allowed.count());
}

Table not_come(std::vector<int> ranks, std::chrono::seconds allowed) {
  return {Code::timed_out, ranks.front(), have_not_come(ranks, allowed), {}};
}

/// On rank 0.
Table gather(Store& store, int size, uint32_t generation, const StartDeadline& deadline) {
  Table table;
  for (int rank = 0; rank < size; ++rank) {
    const auto bytes = store.wait(card_key(generation, rank), deadline.left());
    if (!bytes) {
      auto missing = missing_ranks(store, size, generation);
      if (missing.empty()) missing.push_back(rank);  // came when it was too late
      return not_come(std::move(missing), deadline.allowed);
    }
    table.cards.push_back(read_card(*bytes));
  }
  const std::string disagreement = disagreement_of(table.cards);
  if (!disagreement.empty()) return {Code::invalid_argument, kNoRank, disagreement, {}};
  return table;
}

Table await_table(Store& store, int size, uint32_t generation, const StartDeadline& deadline) {
  const auto bytes = store.wait(store_key(generation, "table"), deadline.left());
  if (bytes) return read_table(*bytes);
  const auto missing = missing_ranks(store, size, generation);
  if (!missing.empty()) return not_come(missing, deadline.allowed);
  deadline.fail_at("rank 0 has come but not answered", 0);
}

}  // namespace

StartDeadline::StartDeadline(std::chrono::seconds allowed_time)
    : at(std::chrono::steady_clock::now() + allowed_time), allowed(allowed_time) {}

Duration StartDeadline::left() const {
  return std::max(at - std::chrono::steady_clock::now(), Duration::zero());
}

void StartDeadline::fail_at(const std::string& what, int rank) const {
  fail(Code::timed_out,
       fmt::format("{} within {} s (HOROVOD_START_TIMEOUT)", what, allowed.count()), rank);
}

std::string store_key(uint32_t generation, const std::string& what) {
  return fmt::format("start/{}/{}", generation, what);
}

std::vector<Card> meet(Store& store, const Card& mine, uint32_t generation,
                       const StartDeadline& deadline) {
  store.set(card_key(generation, mine.rank), to_bytes(mine));
  Table table;
  if (mine.rank == 0) {
    table = gather(store, mine.size, generation, deadline);
    store.set(store_key(generation, "table"), to_bytes(table));
  } else {
    table = await_table(store, mine.size, generation, deadline);
  }
  if (table.code != Code::ok) fail(table.code, table.reason, table.rank);
  if (static_cast<int>(table.cards.size()) != mine.size) {
    fail(Code::invalid_argument, fmt::format("this job has {} ranks for rank 0 and {} for rank {}",
                                             table.cards.size(), mine.size, mine.rank));
  }
  return std::move(table.cards);
}

}  // namespace hvd
