// Which CPUs of a host each of its ranks may use, and how many threads it is told to start. Pure.
//
// All cores are given out, in shares whose sizes differ by one core at most and that lie as close
// together as the machine allows: so two jobs beside each other do not meet on the same few cores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "job/options/hosts.h"
#include "job/process/cores.h"

namespace hvd::job {

enum class BindingWish : uint8_t {
  sensible,  ///< shares where each rank has several cores of its own
  none,
  cores,  ///< shares, or the job is refused
};

struct Binding {
  /// By local rank. None: nobody is bound.
  std::vector<std::vector<int>> cpus;
  int threads = 0;      ///< of each rank; 0: as many as it likes
  std::string why_not;  ///< nobody is bound, though there are several ranks
};

/// The name of a wish in --binding-args; none: horovodrun's own launcher has no such wish.
std::optional<BindingWish> parse_wish(const std::vector<std::string>& binding_args);

Binding bind_ranks(const Cores& cores, int ranks, BindingWish wish);

/// Of the ranks at these places, on the machine that this process is on.
Binding binding_here(const std::vector<Place>& places, BindingWish wish);

/// The job shall not start: the user has asked for what cannot be.
bool is_refused(const Binding& binding, BindingWish wish);
inline constexpr std::string_view kNotBoundAdvice =
    "leave out --binding-args cores, or start fewer ranks there";

/// `rank 0: 0-3, rank 1: 4-7`, or why nobody is bound.
std::string describe(const Binding& binding, const std::vector<Place>& places);

}  // namespace hvd::job
