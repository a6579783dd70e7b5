#include "core/backend/nccl/devices.h"

#include <algorithm>
#include <string>

#include "core/backend/nccl/endings.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/device/messages.h"

namespace hvd::nccl {

std::shared_ptr<Gpu> Devices::use(int index) {
  require_usable_gpu();
  const std::lock_guard lock(mutex_);
  if (gpu_ && gpu_->index() == index) return gpu_;
  if (gpu_) fail(Code::invalid_argument, device::second_gpu_text(index, gpu_->index()));
  if (!driver_) driver_ = device::Driver::load(DeviceKind::cuda);
  const device::RelaxedCapture relaxed(*driver_);  // another thread may capture a stream
  if (!nccl_ && choice_ != GpuOperationsChoice::host) load_nccl();
  auto made = std::make_shared<Gpu>(driver_, index);
  if (nccl_ && reserved_.scratch_bytes > 0)
    made->reserve_scratch(std::min(reserved_.scratch_bytes, Reserved::kMostScratchBytes));
  if (!nccl_ || reserved_.pinned) made->reserve_pinned();
  gpu_ = std::move(made);
  return gpu_;
}

void Devices::load_nccl() {
  if (choice_ == GpuOperationsChoice::nccl || !places_.by_knob.empty()) {
    nccl_ = device::Nccl::load(*driver_, places_);
    return;
  }
  auto search = device::Nccl::find(*driver_, places_);
  if (search.nccl)
    nccl_ = std::move(search.nccl);
  else
    log(LogLevel::warning,
        search.why + ". Until then, GPU tensors are moved without NCCL, which is slower");
}

std::shared_ptr<Gpu> Devices::gpu() const {
  const std::lock_guard lock(mutex_);
  return gpu_;
}

std::shared_ptr<const device::Nccl> Devices::nccl() const {
  const std::lock_guard lock(mutex_);
  return nccl_;
}

}  // namespace hvd::nccl
