#include "core/engine/self_report.h"

#include <algorithm>
#include <utility>

#include "core/transport/tcp_silence.h"

namespace hvd {
namespace {

constexpr size_t kShapesInText = 4;

std::chrono::milliseconds between(TimePoint begin, TimePoint end) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(end - begin);
}

/// "allreduce float32 [4, 2], [8] and 3 more". Tensors without elements in a group are left out:
/// gradients carry what ranks compare in the shape of one.
std::string text_of(const Signature& signature) {
  std::string text(name_of(signature.operation.kind));
  if (!moves_tensors(signature.operation.kind)) return text;
  text += " " + std::string(name_of(signature.operation.dtype));
  size_t shown = 0, more = 0;
  for (const Shape& shape : signature.shapes) {
    if (signature.shapes.size() > 1 && element_count(shape) == 0) continue;
    if (shown == kShapesInText) {
      ++more;
    } else {
      text += (shown++ == 0 ? " " : ", ") + to_text(shape);
    }
  }
  return more == 0 ? text : text + " and " + std::to_string(more) + " more";
}

/// Empty for all ranks.
std::vector<int32_t> ranks_of(const Request& request, const ProcessSets& sets) {
  if (is_message(request.signature)) return request.signature.members;
  if (request.group == kWorldGroup) return {};
  const auto set = sets.find_group(request.group);
  return set == nullptr ? std::vector<int32_t>{}
                        : std::vector<int32_t>(set->ranks.begin(), set->ranks.end());
}

/// The connection that was silent for the longest time counts, of several to one rank.
std::vector<SilentPeer> silent_among(const std::vector<ChannelSet*>& links) {
  std::map<int, std::chrono::milliseconds> longest;
  for (ChannelSet* set : links)
    set->for_each_channel([&](Channel& channel) {
      const auto silence = channel.fd() < 0 ? std::nullopt : silence_at(channel.fd());
      if (!silence) return;
      auto& known = longest[channel.peer()];
      known = std::max(known, *silence);
    });
  std::vector<SilentPeer> found;
  for (const auto& [rank, silence] : longest)
    if (found.size() < kMaxSilentInState) found.push_back({rank, silence});
  return found;
}

}  // namespace

void SelfReport::accepted(Request& request) {
  request.submitted = now_;
  Past& past = last_[accepted_++ % last_.size()];
  past.name = request.name;  // keeps its memory
  past.kind = request.signature.operation.kind;
  past.submitted = now_;
}

void SelfReport::failed(const std::string& why) {
  failure_ = why;
  failed_at_ = clock_.now();
}

/// Oldest first: agreed operations were submitted before the others, roughly.
std::vector<std::pair<const Request*, bool>> SelfReport::pending(
    const std::map<uint64_t, Request>& waiting, Runner& runner) {
  std::vector<std::pair<const Request*, bool>> found;
  runner.for_each_job([&](const Runner::Job& job) {
    for (const Request& request : job.requests)
      if (request.completion) found.emplace_back(&request, true);
  });
  for (const auto& [tag, request] : waiting) found.emplace_back(&request, false);
  return found;
}

void SelfReport::tell(const Facts& facts, const std::map<uint64_t, Request>& waiting,
                      Runner& runner, const ProcessSets& sets,
                      const std::vector<ChannelSet*>& links) {
  const TimePoint now = clock_.now();
  BoardState state{.rank = facts.rank,
                   .size = facts.size,
                   .generation = facts.generation,
                   .step = board_->steps(),
                   .batches = batches_,
                   .has_joined = facts.has_joined,
                   .has_ended = facts.has_ended,
                   .pending = calls_.pending(now)};
  for (const auto& [request, is_agreed] : pending(waiting, runner)) {
    if (state.pending.size() == kMaxPendingInState) {
      ++state.more_pending;
      continue;
    }
    state.pending.push_back({.name = request->joins() ? "join" : request->name,
                             .what = text_of(request->signature),
                             .between = ranks_of(*request, sets),
                             .age = between(request->submitted, now),
                             .is_agreed = is_agreed});
  }
  for (uint64_t i = 0; i < std::min<uint64_t>(accepted_, last_.size()); ++i) {
    const Past& past = last_[(accepted_ - 1 - i) % last_.size()];
    state.last.push_back(
        {past.name, std::string(name_of(past.kind)), between(past.submitted, now)});
  }
  state.last_failure = failure_;
  if (!failure_.empty()) state.since_failure = between(failed_at_, now);
  state.silent = silent_among(links);
  board_->tell(to_bytes(state));
}

}  // namespace hvd
