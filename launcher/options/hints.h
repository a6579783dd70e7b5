// Suggestions for unknown words on the command line: flags of mpirun, srun, torchrun and
// accelerate, misspelled flags, and words in the place of the command. Pure. A hint ends a message,
// as in "; did you mean ...", or is empty.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

/// Returns the hint for a word that begins with a dash and is not a known flag.
std::string hint_for_flag(std::string_view typed);

/// Returns the hint for the first word of a command that is not a program. `is_file`: it names a
/// file.
std::string hint_for_command(const std::string& word, bool is_file);

/// Returns the message for a command line without -np.
std::string without_number(const std::vector<std::string>& command);

/// Returns "; did you mean 'x'?" with the known word that is closest in spelling; empty if none is
/// close.
std::string did_you_mean(std::string_view typed, std::span<const std::string_view> known);

}  // namespace hvd::launcher
