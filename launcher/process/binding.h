// Assigns the CPUs of a host to its ranks, and the number of threads that each rank starts. Pure.
//
// All cores are assigned. Shares differ by at most one core and are as close together as the
// machine allows, so two jobs on one host do not all use the same few cores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/process/cores.h"

namespace hvd::launcher {

enum class BindingWish : uint8_t {
  sensible,  ///< shares, if each rank gets several cores
  none,
  cores,  ///< shares, or the job is rejected
};

struct Binding {
  /// By slot. Empty: no rank is bound.
  std::vector<std::vector<int>> cpus;
  int threads = 0;      ///< per rank; 0: not limited
  std::string why_not;  ///< why no rank is bound although there are several
};

/// Parses --binding-args. Returns none if they are not for horovodrun's own launcher.
std::optional<BindingWish> parse_wish(const std::vector<std::string>& binding_args);

Binding bind_ranks(const Cores& cores, int ranks, BindingWish wish);

/// Returns the binding of this many ranks on this machine.
Binding binding_here(int ranks, BindingWish wish);

/// True if the job must not start: the user requires binding, but it is not possible.
bool is_refused(const Binding& binding, BindingWish wish);
inline constexpr std::string_view kNotBoundAdvice =
    "leave out --binding-args cores, or start fewer ranks on that host";

/// Returns the CPUs of each slot in the kernel's list format.
std::vector<std::string> cpus_by_slot(const Binding& binding);

}  // namespace hvd::launcher
