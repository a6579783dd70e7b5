// The one clear error of an operation that the ranks do not agree on. Pure: the same Verdict gives
// the same text on every rank.
#pragma once

#include <string>

#include "core/negotiate/messages.h"

namespace hvd {

/// Says what the ranks disagree about: the first difference in a fixed order (data type, operation,
/// shape, scaling, reduce operation, root, device), with a rank for each value. `verdict` is a
/// fault, `name` what the operation was submitted as.
std::string describe_fault(const Verdict& verdict, const std::string& name);

}  // namespace hvd
