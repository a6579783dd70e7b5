#include "core/sim/placement.h"

#include <algorithm>

namespace hvd::sim {

Placement draw_placement(std::mt19937_64& random, const std::vector<TensorElements>& tensors) {
  size_t longest = 1;
  for (const auto& [input, output] : tensors) longest = std::max({longest, input, output});
  Placement drawn{.elements = longest + random() % (longest + 1)};
  const auto anywhere = [&](size_t count) { return random() % (drawn.elements - count + 1); };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [input, output] = tensors[i];
    const bool like_last = i > 0 && input == tensors[i - 1].input && random() % 2 == 0;
    Placement::Offsets place =
        like_last ? drawn.places.back() : Placement::Offsets{anywhere(input)};
    if (!like_last) place.output = random() % 2 == 0 ? place.input : anywhere(output);
    place.output = std::min(place.output, drawn.elements - output);
    drawn.places.push_back(place);
  }
  return drawn;
}

}  // namespace hvd::sim
