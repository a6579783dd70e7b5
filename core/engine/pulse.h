// What a rank knows about the life of one neighbour in the tree. Time is counted in beats of this
// process, not by the clock: a process that was itself stopped, or whose machine was suspended,
// has lived no beat meanwhile, and blames no other rank for that time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hvd {

/// A value. Call pass() once per beat of this process.
class Pulse {
 public:
  /// Unanswered beats after which a neighbour is silent. With the beat before the first question,
  /// they take the time of the knob.
  static constexpr int kUnanswered = 5;
  static constexpr int kBeatsPerLimit = kUnanswered + 1;
  /// More for a neighbour that may still load libraries: each sends a beat when it has done so.
  static constexpr int kUnansweredAtStart = 6 * kUnanswered;
  /// A question counts for as many beats. The neighbour repeats it with each beat.
  static constexpr int kBeatsAsked = 3;

  /// The neighbour asks for beats: an operation is pending on its side of the tree.
  void was_asked() { asked_left_ = kBeatsAsked; }
  bool is_asking() const { return asked_left_ > 0; }

  /// A beat. `received_bytes`: ever, from the neighbour. `asks`: it is asked for a beat now.
  void pass(uint64_t received_bytes, bool asks) {
    asked_left_ = std::max(asked_left_ - 1, 0);
    const bool answered = received_bytes != received_bytes_;
    unanswered_ = answered || !asks ? 0 : unanswered_ + (asks_ ? 1 : 0);
    received_bytes_ = received_bytes;
    asks_ = asks;
  }
  /// No beat was due for a while.
  void restart() { unanswered_ = 0, asks_ = false; }

  /// It has not answered the last beat.
  bool is_quiet() const { return unanswered_ > 0; }
  bool is_silent() const { return unanswered_ >= kUnanswered; }
  /// It has not sent anything yet, for a time in which it may load libraries.
  bool may_be_starting() const { return received_bytes_ == 0 && unanswered_ < kUnansweredAtStart; }
  /// The time of its silence.
  int silent_beats() const { return unanswered_ + 1; }

 private:
  int asked_left_ = 0;  ///< beats
  int unanswered_ = 0;
  bool asks_ = false;  ///< the neighbour was asked at the last beat
  uint64_t received_bytes_ = 0;
};

}  // namespace hvd
