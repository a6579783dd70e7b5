// The error text for an operation that the ranks do not agree on. Pure: the same Verdict gives the
// same text on every rank.
#pragma once

#include <string>

#include "core/negotiate/messages.h"

namespace hvd {

/// Describes the first difference in a fixed order (data type, operation, shape, scaling, reduce
/// operation, root, device), with a rank for each value. `verdict` must be a fault; `name` is the
/// name under which the operation was submitted.
std::string describe_fault(const Verdict& verdict, const std::string& name);

}  // namespace hvd
