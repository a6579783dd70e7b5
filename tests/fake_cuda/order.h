// Which work is ordered before which. Every piece of queued work has a number in its stream; a
// clock holds, per stream, the number up to which work is known to be done. Work that accesses
// memory must know all conflicting work on other streams, through events or through the host. The
// check is made when work is queued, so it does not depend on how fast anything runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fake {

/// By number of the stream. A value.
class Clock {
 public:
  uint64_t of(size_t stream) const { return stream < known_.size() ? known_[stream] : 0; }
  void set(size_t stream, uint64_t number) {
    if (stream >= known_.size()) known_.resize(stream + 1);
    known_[stream] = number;
  }
  void join(const Clock& other) {
    for (size_t i = 0; i < other.known_.size(); ++i)
      if (other.known_[i] > of(i)) set(i, other.known_[i]);
  }

 private:
  std::vector<uint64_t> known_;
};

/// The accesses to one allocation, at least those that the host does not know to be done.
class AccessLog {
 public:
  struct Entry {
    uintptr_t begin = 0, end = 0;
    bool writes = false;
    size_t stream = 0;
    uint64_t number = 0;
    const char* what = "";
  };

  /// Adds an access of work with `clock`. Returns a sentence if it conflicts with another one.
  std::string add(const Entry& entry, const Clock& clock) {
    for (const Entry& other : entries_) {
      const bool overlap = entry.begin < other.end && other.begin < entry.end;
      if (!overlap || !(entry.writes || other.writes)) continue;
      if (other.stream == entry.stream || clock.of(other.stream) >= other.number) continue;
      return describe(entry, other);
    }
    // A clock that knows the new entry knows earlier ones of the same stream.
    std::erase_if(entries_, [&](const Entry& other) {
      return other.stream == entry.stream && entry.begin <= other.begin && other.end <= entry.end &&
             (entry.writes || !other.writes);
    });
    entries_.push_back(entry);
    return "";
  }
  /// Drops what the host knows to be done.
  void forget(const Clock& host) {
    std::erase_if(entries_, [&](const Entry& one) { return host.of(one.stream) >= one.number; });
  }
  /// nullptr: the host knows that all are done.
  const Entry* first_unknown_to(const Clock& host) const {
    for (const Entry& one : entries_)
      if (host.of(one.stream) < one.number) return &one;
    return nullptr;
  }

 private:
  static std::string describe(const Entry& entry, const Entry& other) {
    const auto verb = [](const Entry& one) { return one.writes ? " writes" : " reads"; };
    return std::string(entry.what) + " on stream " + std::to_string(entry.stream) + verb(entry) +
           " memory that " + other.what + " on stream " + std::to_string(other.stream) +
           verb(other) + ", without waiting for an event after it";
  }

  std::vector<Entry> entries_;
};

}  // namespace fake
