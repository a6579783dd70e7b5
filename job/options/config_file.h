// The YAML file of --config-file: sections of keys, each of them a row of the knob table.
#pragma once

#include <string>
#include <vector>

#include "core/base/knobs.h"

namespace hvd::job {

struct ConfigFile {
  Environment knobs;
  std::vector<std::string> warnings;
};

/// `name` is for messages. Throws Error{invalid_argument} naming section, key and what is allowed.
ConfigFile parse_config(const std::string& text, const std::string& name);

}  // namespace hvd::job
