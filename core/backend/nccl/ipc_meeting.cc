#include "core/backend/nccl/ipc_meeting.h"

#include <fmt/core.h>

#include <utility>

#include "core/backend/nccl/mover.h"
#include "core/base/assert.h"
#include "core/base/error.h"

namespace hvd::nccl {
namespace {

class IpcMeeting final : public Run {
 public:
  IpcMeeting(IpcMeetingFacts facts, std::shared_ptr<IpcMemory>& memory,
             std::vector<IpcAnswer>& answers, Backend& host, GroupLevels& groups)
      : facts_(std::move(facts)),
        memory_(memory),
        answers_(answers),
        host_(host),
        groups_(groups),
        cards_(facts_.ranks.size()) {
    answers_.assign(facts_.ranks.size(), {});
  }

  Progress advance() override {
    switch (state_) {
      case State::memory:
        if (!facts_.gpu->idle()) return Progress::waiting;  // it may wait for the GPU
        guarded([this] { make_memory(); });
        return to(State::stamp);
      case State::stamp:
        if (!is_reached()) return Progress::waiting;
        exchange(MeetingPart::memory, own_, cards_);
        return to(State::cards);
      case State::cards:
        if (!has_exchanged()) return last_;
        guarded([this] { map_all(); });
        return to(State::check);
      case State::check:
        if (!is_reached()) return Progress::waiting;
        check_stamps();
        exchange(MeetingPart::answers, answer_, answers_);
        return to(State::answers);
      case State::answers:
        return has_exchanged() ? Progress::done : last_;
    }
    HVD_ASSERT(false);
  }

 private:
  enum class State : uint8_t { memory, stamp, cards, check, answers };

  Progress to(State state) {
    state_ = state;
    return Progress::moved;
  }

  /// A rank without memory still meets the others, which learn why.
  template <class Body>
  void guarded(const Body& body) {
    try {
      body();
    } catch (const Error& error) {
      own_.why_not.set(error.what());
      answer_.why_not.set(error.what());
      queued_.reset();
    }
  }

  void make_memory() {
    if (!memory_) memory_ = std::make_shared<IpcMemory>(facts_.gpu, facts_.place_bytes);
    own_ = memory_->card();
    queued_ = facts_.gpu->point(facts_.gpu->stream());
  }

  void map_all() {
    for (size_t i = 0; i < cards_.size(); ++i) {
      if (cards_[i].is_there == 0)
        return answer_.why_not.set(fmt::format("rank {} has no memory to share: {}",
                                               facts_.ranks[i], cards_[i].why_not.get()));
    }
    for (size_t i = 0; i < cards_.size(); ++i) {
      const bool is_own = i == static_cast<size_t>(facts_.rank);
      memory_->map(facts_.ranks[i], cards_[i], is_own ? IpcMemory::Rank::thread : facts_.kind);
    }
    for (size_t i = 0; i < cards_.size(); ++i) memory_->read_stamp(facts_.ranks[i], i);
    queued_ = facts_.gpu->point(facts_.gpu->stream());
    answer_.is_mapped = 1;
  }

  void check_stamps() {
    if (answer_.is_mapped == 0) return;
    for (size_t i = 0; i < cards_.size(); ++i) {
      if (memory_->stamp_at(i) == cards_[i].stamp) continue;
      answer_.is_mapped = 0;
      answer_.why_not.set(
          fmt::format("what it reads from the GPU memory of rank {} is wrong", facts_.ranks[i]));
    }
  }

  bool is_reached() const { return !queued_ || queued_->reached(); }

  template <class Card>
  void exchange(MeetingPart part, const Card& own, std::vector<Card>& all) {
    Batch batch{.sequence = facts_.sequence,
                .operation = {.kind = OperationKind::allgather, .dtype = DType::uint8},
                .part = part_of_meeting(part)};
    batch.tensors.push_back({.input = reinterpret_cast<const std::byte*>(&own),
                             .output = reinterpret_cast<std::byte*>(all.data()),
                             .shape = {1, static_cast<int64_t>(sizeof(Card))}});
    run_ = host_.start(groups_, std::move(batch));
  }
  bool has_exchanged() {
    last_ = run_->advance();
    if (last_ != Progress::done) return false;
    run_.reset();
    return true;
  }

  const IpcMeetingFacts facts_;
  std::shared_ptr<IpcMemory>& memory_;
  std::vector<IpcAnswer>& answers_;
  Backend& host_;
  GroupLevels& groups_;
  IpcCard own_;
  IpcAnswer answer_;
  std::vector<IpcCard> cards_;
  std::shared_ptr<const DevicePoint> queued_;
  std::unique_ptr<Run> run_;  // destroyed before what it refers to
  Progress last_ = Progress::waiting;
  State state_ = State::memory;
};

}  // namespace

std::unique_ptr<Run> ipc_meeting(IpcMeetingFacts facts, std::shared_ptr<IpcMemory>& memory,
                                 std::vector<IpcAnswer>& answers, Backend& host,
                                 GroupLevels& groups) {
  return std::make_unique<IpcMeeting>(std::move(facts), memory, answers, host, groups);
}

std::string why_not_mapped(const std::vector<IpcAnswer>& answers, const std::vector<int>& ranks) {
  for (size_t i = 0; i < answers.size(); ++i)
    if (answers[i].is_mapped == 0)
      return fmt::format("rank {}: {}", ranks[i], answers[i].why_not.get());
  return "";
}

}  // namespace hvd::nccl
