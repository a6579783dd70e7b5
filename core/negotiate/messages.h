// What the three machines say to each other. Values; wire.h turns them into bytes and back.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/negotiate/signature.h"

namespace hvd {

inline constexpr int kNobody = -1;

/// One distinct signature that was submitted under a name, with how many ranks said so and the
/// lowest of them.
struct Opinion {
  SharedSignature signature{};
  int32_t rank = kNobody;
  uint32_t count = 0;
  uint32_t folded = 0;  ///< ranks with yet other opinions, which were not kept
  bool operator==(const Opinion&) const = default;
};
inline constexpr size_t kMaxOpinions = 4;  ///< further ones are folded into the last

/// Nearly always one.
using Opinions = SmallVector<Opinion, 1>;

/// Adds what one or more ranks said to the distinct opinions so far.
void add_opinion(Opinions& opinions, const Opinion& said);

/// Upward: all of this subtree has submitted one operation.
struct Entry {
  GroupNumber group = kWorldGroup;
  SlotNumber slot = kNoSlot;  ///< either a slot, which stands for name and signature ...
  Opinions opinions{};        ///< ... or in full: one opinion, or several that differ
  bool substituted = false;   ///< a joined rank stood in
  int32_t lowest = kNobody;   ///< lowest rank that really submitted
  uint32_t count = 0;
  bool operator==(const Entry&) const = default;
};

/// An operation that a rank has submitted and that is not agreed yet.
struct WaitingName {
  GroupNumber group = kWorldGroup;
  std::string name{};
  uint32_t age_ticks = 0;  ///< ticks of the stall check since it was submitted
  auto operator<=>(const WaitingName&) const = default;
};

/// What one rank waits for, as the stall report tells it. Ranks with equal answers form one class.
struct Waiting {
  std::vector<WaitingName>
      names{};         ///< at most kMaxNamesInReport, oldest first, those of one age by name
  uint32_t more = 0;   ///< further names waiting
  std::string last{};  ///< submitted last
  bool joined = false;
  bool silent = false;  ///< did not answer
  auto operator<=>(const Waiting&) const = default;
};
inline constexpr size_t kMaxNamesInReport = 64;
using StallReport = std::map<Waiting, std::vector<int32_t>>;

/// Upward. Entries count before the joins of the same message.
struct Up {
  std::vector<std::pair<GroupNumber, uint32_t>>
      seen{};  ///< retirements seen, for the groups of `entries`
  std::vector<Entry> entries{};
  std::vector<int32_t> joined{};  ///< ranks below that have joined since, in the order of joining
  std::vector<std::pair<GroupNumber, uint32_t>>
      done{};  ///< batches done, from the pacer of a set without rank 0
  bool shutdown = false;
  int32_t shutdown_by = kNobody;
  int32_t lost = kNobody;
  std::string lost_why{};  ///< what was seen of the lost rank
  bool stalled = false;
  bool has_report = false;
  uint32_t query = 0;
  StallReport report{};
  bool empty() const;
  bool operator==(const Up&) const = default;
};

struct Item {
  SlotNumber slot = kNoSlot;
  bool define = false;  ///< `signature` is here; else the slot stands for it
  SharedSignature signature{};
  std::vector<SlotNumber> retire{};
  GroupNumber new_group = 0;  ///< add_process_set
  bool operator==(const Item&) const = default;
};

/// The agreed next step. Goes down the tree; every rank sees the part that concerns its groups, in
/// one order.
struct Verdict {
  enum class Type : uint8_t { batch, fault, join_done, shut_down, abort, query, knobs };
  Type type = Type::batch;
  GroupNumber group = kWorldGroup;
  uint64_t sequence = 0;      ///< batch that runs something: its place among all of them, from 1
  std::vector<Item> items{};  ///< batch: runs as one; fault: the one item
  Opinions opinions{};        ///< fault: who said what
  bool joined_fault = false;
  int32_t rank = kNobody;  ///< join_done: last; abort, shut_down: cause
  std::string text{};      ///< abort: what was seen; shut_down by the stall check: the report
  uint64_t value = 0;      ///< query number; knobs: fusion bytes
  bool operator==(const Verdict&) const = default;
};
using Down = std::vector<Verdict>;
inline constexpr size_t kMaxTextBytes = MiB;  ///< of a Verdict, or of what was seen of a lost rank

/// Puts into `up` how many retirements the sender has seen of each group that its entries speak of.
/// `retirements(group)` tells.
template <class F>
void stamp(Up& up, F retirements) {
  std::set<GroupNumber> groups{};
  for (const Entry& entry : up.entries) groups.insert(entry.group);
  for (const GroupNumber group : groups) up.seen.emplace_back(group, retirements(group));
}

}  // namespace hvd
