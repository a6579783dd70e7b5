#include "core/group/bootstrap/identity.h"

#include <array>

#include "core/group/bootstrap/launchers.h"

namespace hvd {
namespace {

// In the order in which they are asked: horovodrun first, since it may run below another one.
constexpr std::array kLaunchers{from_horovodrun};

}  // namespace

Identity identity_from(const Environment& environment) {
  for (const auto launcher : kLaunchers) {
    if (auto identity = launcher(environment)) return *std::move(identity);
  }
  return Identity();
}

}  // namespace hvd
