#include "core/capi/knobs_json.h"

#include <nlohmann/json.hpp>

#include "core/base/knobs.h"

namespace hvd {

std::string knobs_json() {
  const Knobs defaults;
  nlohmann::json table = nlohmann::json::array();
  for (const KnobRow& row : rows()) {
    table.push_back({{"env", row.env},
                     {"flags", row.flags},
                     {"off_flags", row.off_flags},
                     {"dest", row.dest},
                     {"yaml", row.yaml},
                     {"kind", to_text(row.kind)},
                     {"env_unit", to_text(row.env_unit)},
                     {"flag_unit", to_text(row.flag_unit)},
                     {"default", text_of(row, defaults)},
                     {"min", row.min},
                     {"max", row.max},
                     {"choices", std::vector<std::string>(row.choices.begin(), row.choices.end())},
                     {"scope", to_text(row.scope)},
                     {"stage", to_text(row.stage)},
                     {"help", row.help}});
  }
  return table.dump();
}

}  // namespace hvd
