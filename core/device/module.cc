#include "core/device/module.h"

namespace hvd::device {

void Kernel::launch_with(const Grid& grid, StreamHandle stream, void** arguments) const {
  driver_->check(driver_->call().launch_kernel(handle_, grid.blocks_x, grid.blocks_y, 1,
                                               grid.threads, 1, 1, 0, stream, arguments, nullptr),
                 "cuLaunchKernel");
}

Module::Module(const PrimaryContext& context, const char* image) : context_(context) {
  const ContextScope scope(context);
  context.driver().check(context.call().module_load_data(&handle_, image), "cuModuleLoadData");
}

Kernel Module::kernel(const char* name) const {
  const ContextScope scope(context_);
  FunctionHandle function = nullptr;
  context_.driver().check(context_.call().module_get_function(&function, handle_, name),
                          "cuModuleGetFunction");
  return {context_.driver(), function};
}

}  // namespace hvd::device
