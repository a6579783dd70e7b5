#include "core/base/version.h"

namespace hvd {

const char* const kVersion = HVD_VERSION;

}  // namespace hvd
