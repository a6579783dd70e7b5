// The YAML file of --config-file: sections of keys, each of them a row of the knob table.
#pragma once

#include <string>
#include <vector>

#include "core/base/knobs.h"

namespace hvd::launcher {

/// The value of a knob as a flag or a config file sets it.
struct Setting {
  const KnobRow* row = nullptr;
  std::string shown{};  ///< the spelling that the user wrote, for messages: `--cycle-time-ms`
  std::string text{};   ///< the value, in the unit of the flag
};

/// Returns the value of the variable. Throws Error{invalid_argument} if the knob does not allow it.
std::string variable_value(const Setting& setting);

struct ConfigFile {
  std::vector<Setting> settings;  ///< with values that their knobs allow
  std::vector<std::string> warnings;
};

/// `name` is for messages. Throws Error{invalid_argument} naming section, key and the allowed
/// values.
ConfigFile parse_config(const std::string& text, const std::string& name);

}  // namespace hvd::launcher
