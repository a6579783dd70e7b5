#include "core/backend/host/eager_link_call.h"

#include "core/base/assert.h"
#include "core/base/bytes.h"
#include "core/base/small_vector.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// Of larger ones, what it costs to plan them is a few parts of a hundred. Measured over loopback,
// as one exchange and planned, us: np 2, allgather 16 KiB 9.7 and 11.7, 256 KiB 38 and 41, 1 MiB
// 106 and 111; np 4, alltoall 1 KiB 72 and 93, 256 KiB 182 and 209.
constexpr size_t kMostBytes = 256 * KiB;
// A root that sends to all itself spares the last ones a stop on the way, but sends everything
// three times instead of twice, which a slow wire feels: at 1 Gbit/s 4 KiB are 33 us, about what a
// stop takes. Over loopback, np 4, as above: 1 KiB 37 and 51, 16 KiB 45 and 56, 64 KiB 89 and 92.
constexpr int kMostRanksOfARoot = 4;
constexpr size_t kMostBytesOfARoot = 4 * KiB;

}  // namespace

EagerLinkCall::EagerLinkCall(Group& group, uint64_t sequence, const EagerTask& task)
    : group_(group),
      ticket_{sequence, 0},
      task_(task),
      wanted_(wanted_of(task, group.rank(), group.size())),
      sources_(wanted_.empty() ? 0 : sources_of(task, group.size())) {
  HVD_ASSERT(group.in_place() && group.size() <= kMostRanks);
  HVD_ASSERT(task.prescale == 1.0 && task.bytes() <= group.unit_bytes());
}

EagerLinkCall::~EagerLinkCall() {
  if (!done_) group_.return_loans();
}

/// More than two ranks gather and reduce sooner when some pass on what they have (selector.cc).
EagerLimits EagerLinkCall::limits(int ranks) {
  if (ranks < 2 || ranks > kMostRanks) return {};
  if (ranks == 2)
    return {.reduced = kMostBytes,
            .gathered = kMostBytes,
            .broadcast = kMostBytes,
            .dealt = kMostBytes};
  return {.broadcast = ranks <= kMostRanksOfARoot ? kMostBytesOfARoot : 0, .dealt = kMostBytes};
}

Run::Progress EagerLinkCall::advance() {
  if (!sent_ && !send()) return pump();
  if (!take()) return pump();
  // A sum may go where the input is on loan.
  if (!group_.sent(ticket_)) return pump();
  if (task_.reduces() && !wanted_.empty())
    reduce(task_, wanted_, wanted_, {parts_.data(), static_cast<size_t>(group_.size())});
  group_.release(ticket_);
  done_ = true;
  return Run::Progress::done;
}

/// False while peers have not taken enough of what they were sent before.
bool EagerLinkCall::send() {
  if (!group_.reserve(ticket_, 0)) return false;
  SmallVector<ConstBytes, 4> pieces;
  SmallVector<Loan, 4> loans;
  if (gives(task_, group_.rank())) {
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
  const size_t bytes = wanted_.bytes();
  for (int i = 0; i < sources_; ++i) {
    const int from = source_of(task_, i, group_.rank(), group_.size());
    if (from == group_.rank()) continue;
    MutableBytes target{};
    if (!task_.reduces()) target = {place_of(task_, wanted_, from), bytes};
    group_.land(ticket_, {from, 0, bytes}, target);
  }
}

/// Puts what is moved into the output as it is there, and remembers where the rest is; false while
/// a source is missing.
bool EagerLinkCall::take() {
  for (; seen_ < sources_; ++seen_) {
    const int from = source_of(task_, seen_, group_.rank(), group_.size());
    const void* input = task_.input + wanted_.begin;
    if (from != group_.rank()) {
      const auto view = group_.view(ticket_, {from, 0, wanted_.bytes()});
      if (!view) return false;
      input = view->data();
    }
    parts_[from] = input;
    if (!task_.reduces()) put(task_, wanted_, wanted_, from, input, &kernel::copy);
  }
  return true;
}

Run::Progress EagerLinkCall::pump() {
  return group_.pump() ? Run::Progress::moved : Run::Progress::waiting;
}

}  // namespace hvd
