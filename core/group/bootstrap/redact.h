// What a log or an error may show of a text that launchers carry: such a text may hold the job's
// key. Every line of a launcher's protocol that is shown goes through here. Pure.
#pragma once

#include <string>
#include <string_view>

namespace hvd {

/// `line` without the values of its `value=` fields, and without any run of hex digits that is long
/// enough to be half a key.
std::string redacted(std::string_view line);

}  // namespace hvd
