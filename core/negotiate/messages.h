// The messages between the three state machines. Values; wire.h encodes and decodes them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/error.h"
#include "core/negotiate/signature.h"

namespace hvd {

/// In place of the rank that is lost: the launcher.
inline constexpr int32_t kLostLauncher = kNoRank - 1;

/// One distinct signature submitted under a name, with the number of ranks that submitted it and
/// the lowest of them.
struct Opinion {
  SharedSignature signature{};
  int32_t rank = kNoRank;
  uint32_t count = 0;
  uint32_t folded = 0;  ///< number of ranks with further opinions, which are not stored
  bool operator==(const Opinion&) const = default;
};
inline constexpr size_t kMaxOpinions = 4;  ///< further ones are folded into the last

/// Almost always one element.
using Opinions = SmallVector<Opinion, 1>;

/// Adds an opinion of one or more ranks to the distinct opinions so far.
void add_opinion(Opinions& opinions, const Opinion& said);

/// To the parent: all ranks of this subtree have submitted one operation.
struct Entry {
  GroupNumber group = kWorldGroup;
  SlotNumber slot = kNoSlot;  ///< either a slot, which identifies name and signature ...
  Opinions opinions{};        ///< ... or in full: one opinion, or several that differ
  bool substituted = false;   ///< a joined rank was substituted
  int32_t lowest = kNoRank;   ///< lowest rank that submitted (not substituted)
  uint32_t count = 0;
  bool operator==(const Entry&) const = default;
};

/// An operation that a rank has submitted and that is not agreed yet.
struct WaitingName {
  GroupNumber group = kWorldGroup;
  std::string name{};
  uint32_t age_ticks = 0;          ///< stall-check periods since submission
  std::vector<int32_t> between{};  ///< message: its ranks; other operations: empty
  uint32_t expired_ms = 0;         ///< its timeout, if that has expired
  auto operator<=>(const WaitingName&) const = default;
};

/// The waiting operations of one rank, for the stall report. Ranks with equal values form one
/// class.
struct Waiting {
  std::vector<WaitingName> names{};  ///< at most kMaxNamesInReport, oldest first, then by name
  uint32_t more = 0;                 ///< number of further waiting names
  std::string last{};                ///< the last submitted name
  bool joined = false;
  bool silent = false;  ///< did not answer
  auto operator<=>(const Waiting&) const = default;
};
inline constexpr size_t kMaxNamesInReport = 64;
using StallReport = std::map<Waiting, std::vector<int32_t>>;

/// To the parent. Entries take effect before the joins of the same message.
struct Up {
  std::vector<std::pair<GroupNumber, uint32_t>>
      seen{};  ///< number of retirements seen, for the groups of `entries`
  std::vector<Entry> entries{};
  std::vector<int32_t>
      joined{};  ///< ranks of this subtree that have joined since the last message, in order
  std::vector<std::pair<GroupNumber, uint32_t>>
      done{};  ///< finished batches, from the pacer of a set without rank 0
  bool shutdown = false;
  int32_t shutdown_by = kNoRank;
  int32_t lost = kNoRank;  ///< a rank, or kLostLauncher
  std::string lost_why{};  ///< how the loss was detected
  bool stalled = false;
  bool expired = false;  ///< the timeout of an operation has expired
  bool has_report = false;
  uint32_t query = 0;
  StallReport report{};
  bool empty() const;
  bool operator==(const Up&) const = default;
};

struct Item {
  SlotNumber slot = kNoSlot;
  bool define = false;  ///< `signature` is included; otherwise the slot identifies it
  SharedSignature signature{};
  std::vector<SlotNumber> retire{};
  GroupNumber new_group = 0;  ///< add_process_set
  bool operator==(const Item&) const = default;
};

/// The agreed next step. Sent down the tree; every rank receives the verdicts of its groups, in the
/// same order.
struct Verdict {
  enum class Type : uint8_t { batch, fault, join_done, shut_down, abort, query, knobs };
  Type type = Type::batch;
  GroupNumber group = kWorldGroup;
  uint64_t sequence =
      0;  ///< batch with tensors or a barrier: its number in the global order, from 1
  std::vector<Item> items{};  ///< batch: run as one; fault: the single item
  Opinions opinions{};        ///< fault: the differing signatures
  bool joined_fault = false;
  int32_t rank = kNoRank;  ///< join_done: the rank that joined last; shut_down: the cause; abort:
                           ///< what is lost, a rank or kLostLauncher
  std::string
      text{};  ///< abort: how the loss was detected; shut_down by the stall check: the report
  uint64_t value = 0;  ///< query number; knobs: fusion bytes
  bool operator==(const Verdict&) const = default;
};
using Down = std::vector<Verdict>;
inline constexpr size_t kMaxTextBytes = MiB;  ///< limit of Verdict::text and Up::lost_why

/// Stores in `up` how many retirements the sender has seen in each group of its entries, as
/// returned by `retirements(group)`.
template <class F>
void stamp(Up& up, F retirements) {
  std::set<GroupNumber> groups{};
  for (const Entry& entry : up.entries) groups.insert(entry.group);
  for (const GroupNumber group : groups) up.seen.emplace_back(group, retirements(group));
}

}  // namespace hvd
