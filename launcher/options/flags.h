// The command line of horovodrun as a table with one row per flag. Parsing, --help, the keys of a
// config file and the namespace of horovod.runner.launch.parse_args() are derived from it. The
// flags that set a variable come from the knob table of the runtime.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/knobs.h"
#include "launcher/options/options.h"

namespace hvd::launcher {

struct Flag;

/// A flag as the user typed it, with the values that followed it.
struct Given {
  const Flag* flag = nullptr;
  std::string spelled{};  ///< the name, without a value
  std::vector<std::string> values{};

  const std::string& text() const { return values.front(); }
};

/// The section of --help that lists a flag. `hidden`: only for horovod.runner and horovod.doctor.
enum class Heading : uint8_t { job, output, elastic, tuning, later, hidden };

/// `names`: a comma-separated list. `words`: split into words as by a shell.
enum class FlagKind : uint8_t { toggle, integer, decimal, text, choice, cores, names, words };

/// One row. Several spellings are separated by commas.
struct Flag {
  std::string_view names;
  std::string_view dest{};  ///< name in parse_args(); empty: none; "!": inverted
  Heading heading = Heading::job;
  FlagKind kind = FlagKind::text;
  std::string_view value{};  ///< what --help calls the value
  size_t value_count = 1;    ///< 0 for a toggle
  int min = 0;
  int max = std::numeric_limits<int>::max();
  std::string_view initial{};    ///< the value without the flag, for --help
  std::string_view exclusive{};  ///< only one of the flags with the same word here may be given
  std::string_view help{};
  void (*take)(Options&, const Given&) = nullptr;  ///< for values that have been checked
  const KnobRow* knob = nullptr;                   ///< sets its variable instead of calling `take`
  std::string_view knob_value{};                   ///< the value that a toggle sets

  /// Returns the spelling that messages and lists use.
  std::string_view name() const { return names.substr(0, names.find(',')); }
};

/// The table: the launcher's own flags, then those of the knobs.
std::span<const Flag> flags();

/// Returns the row with this spelling; null if there is none.
const Flag* find_flag(std::string_view spelled);

/// Returns the items of a comma-separated list.
std::vector<std::string_view> items(std::string_view list);

}  // namespace hvd::launcher
