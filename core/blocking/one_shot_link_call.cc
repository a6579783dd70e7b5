#include "core/blocking/one_shot_link_call.h"

#include "core/base/assert.h"
#include "core/base/bytes.h"
#include "core/base/small_vector.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

// For larger operations the time for planning is negligible. Tuned by measurement, see
// docs/decisions/0014.
constexpr size_t kMostBytes = 256 * KiB;
// A root that sends to all ranks itself saves the last ranks a hop, but sends more bytes (with four
// ranks, three copies instead of two). On slow networks that costs more than the hop for larger
// tensors. See docs/decisions/0014.
constexpr int kMostRanksOfARoot = 4;
constexpr size_t kMostBytesOfARoot = 4 * KiB;

}  // namespace

OneShotLinkCall::OneShotLinkCall(Group& group, uint64_t sequence, const TensorTask& task)
    : group_(group),
      ticket_{sequence, 0},
      task_(task),
      wanted_(wanted_of(task, group.rank(), group.size())),
      sources_(wanted_.empty() ? 0 : sources_of(task, group.size())) {
  HVD_ASSERT(group.in_place() && group.size() <= kMostRanks);
  HVD_ASSERT(task.operation.prescale == 1.0 && task.bytes() <= group.unit_bytes());
}

OneShotLinkCall::~OneShotLinkCall() {
  if (!done_) group_.return_loans();
}

/// With more than two ranks, allgather and allreduce are faster with forwarding (selector.cc).
SizeLimits OneShotLinkCall::limits(int ranks) {
  if (ranks < 2 || ranks > kMostRanks) return {};
  if (ranks == 2)
    return {.reduced = kMostBytes,
            .gathered = kMostBytes,
            .broadcast = kMostBytes,
            .dealt = kMostBytes};
  return {.broadcast = ranks <= kMostRanksOfARoot ? kMostBytesOfARoot : 0, .dealt = kMostBytes};
}

Progress OneShotLinkCall::advance() {
  if (!sent_ && !send()) return pump();
  if (!take()) return pump();
  // The result may overwrite the input, which must be sent first.
  if (!group_.sent(ticket_)) return pump();
  if (task_.reduces() && !wanted_.empty())
    reduce(task_, wanted_, wanted_, {parts_.data(), static_cast<size_t>(group_.size())});
  group_.release(ticket_);
  done_ = true;
  return Progress::done;
}

/// Returns false until peers have received enough of the earlier data.
bool OneShotLinkCall::send() {
  if (!group_.reserve(ticket_, 0)) return false;
  SmallVector<ConstBytes, 4> pieces;
  SmallVector<Loan, 4> loans;
  if (gives(task_, group_.rank())) {
    pieces.reserve(static_cast<size_t>(group_.size()));  // loans point to the elements
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

/// Posts receives, directly into the output unless the task reduces.
void OneShotLinkCall::await_landings() {
  const size_t bytes = wanted_.bytes();
  for (int i = 0; i < sources_; ++i) {
    const int from = source_of(task_, i, group_.rank(), group_.size());
    if (from == group_.rank()) continue;
    MutableBytes target{};
    if (!task_.reduces()) target = {place_of(task_, wanted_, from), bytes};
    group_.land(ticket_, {from, 0, bytes}, target);
  }
}

/// Copies arrived data into the output, or for a reduction stores its address. Returns false until
/// all sources have arrived.
bool OneShotLinkCall::take() {
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

Progress OneShotLinkCall::pump() { return group_.pump() ? Progress::moved : Progress::waiting; }

}  // namespace hvd
