// Where a rank is among those of its host, and its host among those that have such a place: what
// launchers do not say follows from the cards. Pure.
#pragma once

#include <vector>

#include "core/group/bootstrap/card.h"
#include "core/group/bootstrap/identity.h"

namespace hvd {

/// Fills in what `identity` does not know. `cards`: of all ranks in their order; none in a job of
/// one.
void complete_place(Identity& identity, const std::vector<Card>& cards);

}  // namespace hvd
