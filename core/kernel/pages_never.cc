#include "core/kernel/pages.h"

namespace hvd::kernel {

bool goes_by_pages(size_t) { return false; }

}  // namespace hvd::kernel
