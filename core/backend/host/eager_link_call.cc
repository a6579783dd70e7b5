#include "core/backend/host/eager_link_call.h"

#include "core/base/assert.h"
#include "core/base/bytes.h"
#include "core/base/small_vector.h"

namespace hvd {
namespace {

// Larger ones do not feel what it costs to plan them. Measured over loopback, as one exchange and
// planned, us: np 2, allgather 16 KiB 9.7 and 11.7, 256 KiB 38 and 41, 1 MiB 106 and 111; np 4,
// alltoall 1 KiB 72 and 93, 256 KiB 182 and 209.
constexpr size_t kMostBytes = 256 * KiB;
// A root that sends to all itself, one behind the other, spares the last ones a stop on the way,
// and keeps its connection busy for longer: np 4, 1 KiB 37 and 51 us, 64 KiB 89 and 92.
constexpr int kMostRanksOfARoot = 4;
constexpr size_t kMostBytesOfARoot = 4 * KiB;

}  // namespace

EagerLinkCall::EagerLinkCall(Group& group, uint64_t sequence, const EagerTask& task)
    : group_(group),
      ticket_{sequence, 0},
      task_(task),
      wanted_(wanted_of(task, group.rank(), group.size())),
      sources_(wanted_.empty()                        ? 0
               : task.transfer == Transfer::broadcast ? 1
                                                      : group.size()) {
  HVD_ASSERT(group.in_place() && group.size() <= kMostRanks && task.prescale == 1.0);
}

EagerLinkCall::~EagerLinkCall() {
  if (!done_) group_.return_loans();
}

/// More than two ranks gather and reduce sooner when some pass on what they have (selector.cc).
EagerLimits EagerLinkCall::limits(int ranks) {
  if (ranks < 2 || ranks > kMostRanks) return {};
  if (ranks == 2)
    return {.reduced = kMostBytes, .gathered = kMostBytes, .told = kMostBytes, .dealt = kMostBytes};
  return {.told = ranks <= kMostRanksOfARoot ? kMostBytesOfARoot : 0, .dealt = kMostBytes};
}

Run::Progress EagerLinkCall::advance() {
  if (!sent_ && !send()) return pump();
  if (!see()) return pump();
  // The result may lie where the input is on loan.
  if (!group_.sent(ticket_)) return pump();
  if (!wanted_.empty()) take(task_, wanted_, wanted_, {parts_.data(), static_cast<size_t>(seen_)});
  group_.release(ticket_);
  done_ = true;
  return Run::Progress::done;
}

/// False while peers have not taken enough of what they were sent before.
bool EagerLinkCall::send() {
  if (!group_.reserve(ticket_, 0)) return false;
  SmallVector<ConstBytes, 4> pieces;
  SmallVector<Loan, 4> loans;
  if (sends()) {
    pieces.reserve(static_cast<size_t>(group_.size()));  // loans point to them
    for (int peer = 0; peer < group_.size(); ++peer) {
      const Stretch stretch = wanted_of(task_, peer, group_.size());
      if (peer == group_.rank() || stretch.empty()) continue;
      pieces.push_back({task_.input + stretch.begin, stretch.bytes()});
      loans.push_back({{peer, 0, stretch.bytes()}, {&pieces.back(), 1}});
    }
  }
  group_.publish_loans(ticket_, {loans.data(), loans.size()});
  await_landings();
  sent_ = true;
  return true;
}

/// What is only moved lands in the output.
void EagerLinkCall::await_landings() {
  for (int i = 0; i < sources_; ++i) {
    if (source(i) == group_.rank()) continue;
    std::byte* const place = task_.output + static_cast<size_t>(i) * wanted_.bytes();
    group_.land(ticket_, {source(i), 0, wanted_.bytes()},
                task_.reduces() ? MutableBytes{} : MutableBytes{place, wanted_.bytes()});
  }
}

bool EagerLinkCall::see() {
  for (; seen_ < sources_; ++seen_) {
    const int from = source(seen_);
    if (from == group_.rank()) {
      parts_[seen_] = task_.input + wanted_.begin;
      continue;
    }
    const auto view = group_.view(ticket_, {from, 0, wanted_.bytes()});
    if (!view) return false;
    parts_[seen_] = view->data();
  }
  return true;
}

Run::Progress EagerLinkCall::pump() {
  return group_.pump() ? Run::Progress::moved : Run::Progress::waiting;
}

bool EagerLinkCall::sends() const {
  return task_.transfer != Transfer::broadcast || task_.root == group_.rank();
}

int EagerLinkCall::source(int index) const {
  return task_.transfer == Transfer::broadcast ? task_.root : index;
}

}  // namespace hvd
