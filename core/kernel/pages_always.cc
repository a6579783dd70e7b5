#include "core/kernel/pages.h"

namespace hvd::kernel {

bool goes_by_pages(size_t) { return true; }

}  // namespace hvd::kernel
