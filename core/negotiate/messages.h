// What the three machines say to each other. Values; wire.h turns them into bytes and back.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/negotiate/signature.h"

namespace hvd {

inline constexpr int kNobody = -1;

/// One distinct signature that was submitted under a name, with how many ranks said so and the lowest of them.
struct Opinion {
  Signature signature;
  int32_t rank = kNobody;
  uint32_t count = 0;
  bool operator==(const Opinion&) const = default;
};
inline constexpr size_t kMaxOpinions = 4;  ///< further ones are folded into the last

/// Upward: all of this subtree has submitted one operation.
struct Entry {
  GroupNumber group = kWorldGroup;
  SlotNumber slot = kNoSlot;       ///< either a slot, which stands for name and signature ...
  std::string name;                ///< ... or the name in full, for messages,
  std::vector<Opinion> opinions;   ///< with one opinion, or several that differ
  bool substituted = false;        ///< a joined rank stood in
  int32_t lowest = kNobody;        ///< lowest rank that really submitted
  uint32_t count = 0;
  bool operator==(const Entry&) const = default;
};

/// What one rank waits for, as the stall report tells it. Ranks with equal answers form one class.
struct Waiting {
  std::vector<std::string> names;  ///< at most kMaxNamesInReport, oldest first
  uint32_t more = 0;               ///< further names waiting
  std::string last;                ///< submitted last
  uint32_t age_ticks = 0;          ///< of the oldest, in ticks of the stall check
  bool joined = false;
  bool silent = false;             ///< did not answer
  auto operator<=>(const Waiting&) const = default;
};
inline constexpr size_t kMaxNamesInReport = 6;
using StallReport = std::map<Waiting, std::vector<int32_t>>;

/// Upward. Entries count before the join flag of the same message.
struct Up {
  std::vector<std::pair<GroupNumber, uint32_t>> seen;  ///< retirements seen, for the groups of `entries`
  std::vector<Entry> entries;
  bool joined = false;
  int32_t last_joined = kNobody;
  std::vector<std::pair<GroupNumber, uint32_t>> done;  ///< batches done, from the pacer of a set without rank 0
  bool shutdown = false;
  int32_t shutdown_by = kNobody;
  int32_t lost = kNobody;
  std::string lost_why;  ///< what was seen of the lost rank
  bool stalled = false;
  bool has_report = false;
  uint32_t query = 0;
  StallReport report;
  bool empty() const;
};

struct Item {
  SlotNumber slot = kNoSlot;
  bool define = false;             ///< `signature` is here; else the slot stands for it
  Signature signature;
  std::vector<SlotNumber> retire;
  GroupNumber new_group = 0;       ///< add_process_set
  bool operator==(const Item&) const = default;
};

/// The agreed next step. Goes down the tree; every rank sees the part that concerns its groups, in one order.
struct Verdict {
  enum class Type : uint8_t { batch, fault, join_done, shut_down, abort, query, knobs };
  Type type = Type::batch;
  GroupNumber group = kWorldGroup;
  uint64_t sequence = 0;           ///< batch: its place among all batches of the job
  std::vector<Item> items;         ///< batch: runs as one; fault: the one item
  std::vector<Opinion> opinions;   ///< fault: who said what
  bool joined_fault = false;
  int32_t rank = kNobody;          ///< join_done: last; abort, shut_down: cause
  std::string text;                ///< abort: what was seen; shut_down by the stall check: the report
  uint64_t value = 0;              ///< query number; knobs: fusion bytes
};
using Down = std::vector<Verdict>;

}  // namespace hvd
