// What rank 0 tells all when a job starts: the cards of all ranks, or why there is no job. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/group/bootstrap/card.h"

namespace hvd {

struct Table {
  Code code = Code::ok;
  int32_t rank = kNoRank;  ///< that caused it
  std::string reason{};
  std::vector<Card> cards{};
};

/// The cards go without what has been agreed on.
ByteVector to_bytes(const Table& table);
/// Takes memory for the cards that are there, whatever their count says. Throws Error{internal}
/// when malformed.
Table read_table(ConstBytes bytes);

}  // namespace hvd
