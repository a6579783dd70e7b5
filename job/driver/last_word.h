// What a rank tells the launcher, through the Store and before it raises: that it ends because of
// another one. Key `ended/<generation>/<rank>`, value `<cause> <reason>`.
#pragma once

#include <optional>
#include <string_view>

#include "job/driver/driver.h"

namespace hvd::job {

inline constexpr std::string_view kLastWords = "ended/";

/// Nothing when key or value are not of that form.
std::optional<RankEnds> parse_last_word(std::string_view key, std::string_view value);

}  // namespace hvd::job
