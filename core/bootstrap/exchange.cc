#include "core/bootstrap/exchange.h"

#include <fmt/core.h>

#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/bootstrap/card_table.h"
#include "core/transport/job_number.h"

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

CardTable table_of_missing(const std::vector<int>& ranks, const StartDeadline& deadline) {
  const char* const have = ranks.size() == 1 ? "has" : "have";
  return {Code::timed_out,
          ranks.front(),
          fmt::format("{} {} not joined the job {}", ranks_text(ranks), have, deadline.text()),
          {}};
}

/// On rank 0.
CardTable collect_cards(Store& store, int size, uint32_t generation,
                        const StartDeadline& deadline) {
  CardTable table;
  for (int rank = 0; rank < size; ++rank) {
    const auto bytes = store.wait(card_key(generation, rank), deadline.left());
    if (!bytes) {
      auto missing = missing_ranks(store, size, generation);
      if (missing.empty()) missing.push_back(rank);  // its card came after the deadline
      return table_of_missing(missing, deadline);
    }
    table.cards.push_back(read_peer_card(*bytes));
  }
  const std::string disagreement = disagreement_of(table.cards);
  if (!disagreement.empty()) return {Code::invalid_argument, kNoRank, disagreement, {}};
  return table;
}

CardTable await_table(Store& store, int size, uint32_t generation, const StartDeadline& deadline) {
  const auto bytes = store.wait(store_key(generation, "table"), deadline.left());
  if (bytes) return read_card_table(*bytes);
  const auto missing = missing_ranks(store, size, generation);
  if (!missing.empty()) return table_of_missing(missing, deadline);
  deadline.fail_at("rank 0 has joined the job but not answered", 0);
}

}  // namespace

std::vector<PeerCard> exchange_cards(Store& store, const PeerCard& mine, uint32_t generation,
                                     const StartDeadline& deadline) {
  store.set(card_key(generation, mine.rank), to_bytes(mine));
  CardTable table;
  if (mine.rank == 0) {
    table = collect_cards(store, mine.size, generation, deadline);
    store.set(store_key(generation, "table"), to_bytes(table));
  } else {
    table = await_table(store, mine.size, generation, deadline);
  }
  if (table.code != Code::ok) fail(table.code, table.reason, table.rank);
  if (static_cast<int>(table.cards.size()) != mine.size) {
    fail(Code::invalid_argument,
         fmt::format("the number of ranks must be the same on every rank, but is {} on rank 0 and "
                     "{} on rank {}",
                     table.cards.size(), mine.size, mine.rank));
  }
  return std::move(table.cards);
}

}  // namespace hvd
