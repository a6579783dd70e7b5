// Removes the job's key from texts of launcher protocols before they are logged or put into an
// error. Every such line goes through here. Pure.
#pragma once

#include <string>
#include <string_view>

namespace hvd {

/// `line` without the values of its `value=` fields, and without runs of 32 or more hex digits
/// (half a key).
std::string redacted(std::string_view line);

}  // namespace hvd
