// The configuration table as JSON, for bindings and documentation.
#pragma once

#include <string>

namespace hvd {

/// Returns a list of objects, one per row, with the fields env, flags, dest, yaml, kind, unit,
/// default, min, max, choices, scope, stage, help.
std::string knobs_json();

}  // namespace hvd
