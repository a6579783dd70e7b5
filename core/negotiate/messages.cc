#include "core/negotiate/messages.h"

#include <algorithm>

namespace hvd {

void add_opinion(Opinions& opinions, const Opinion& said) {
  for (Opinion& have : opinions) {
    if (have.signature != said.signature) continue;
    have.rank = std::min(have.rank, said.rank);
    have.count += said.count;
    have.folded += said.folded;
    return;
  }
  if (opinions.size() < kMaxOpinions) {
    opinions.push_back(said);
  } else {
    opinions.back().folded += said.count + said.folded;
  }
}

bool Up::empty() const {
  return entries.empty() && joined.empty() && done.empty() && !shutdown && lost == kNoRank &&
         !stalled && !expired && !has_report;
}

}  // namespace hvd
