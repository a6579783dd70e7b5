#include "core/backend/host/private_outputs.h"

#include <algorithm>
#include <utility>

#include "core/backend/host/batch_memory.h"
#include "core/base/bytes.h"
#include "core/kernel/kernel.h"

namespace hvd {
namespace {

/// Bytes per call of advance(), so that the engine can do other work in between.
constexpr size_t kStoredBytes = 512 * KiB;

class PrivateRun final : public Run {
 public:
  PrivateRun(PrivateOutputs outputs, std::unique_ptr<Run> run)
      : outputs_(std::move(outputs)), run_(std::move(run)) {}

  Progress advance() override {
    if (!run_) return outputs_.store_some() ? Progress::done : Progress::moved;
    const Progress progress = run_->advance();
    if (progress != Progress::done) return progress;
    run_.reset();
    return Progress::moved;
  }
  Activity activity() const override { return run_ ? run_->activity() : Activity::data; }
  Route route() const override { return run_ ? run_->route() : Route{}; }

 private:
  PrivateOutputs outputs_;
  std::unique_ptr<Run> run_;  // destroyed first: links may still send from the outputs
};

}  // namespace

PrivateOutputs::PrivateOutputs(Batch& batch, const std::vector<size_t>& tensors, int rank,
                               int size) {
  outputs_.reserve(tensors.size());
  for (const size_t i : tensors) {
    BatchTensor& tensor = batch.tensors[i];
    Output& output = outputs_.emplace_back();
    output.memory = AlignedBuffer(output_bytes(batch, tensor, rank, size));
    output.destination = std::exchange(tensor.output, output.memory.data());
  }
}

bool PrivateOutputs::store_some() {
  for (size_t room = kStoredBytes; room > 0 && stored_outputs_ < outputs_.size();) {
    const Output& output = outputs_[stored_outputs_];
    const size_t bytes = std::min(room, output.memory.size() - stored_bytes_);
    kernel::copy(output.destination + stored_bytes_, output.memory.data() + stored_bytes_, bytes);
    stored_bytes_ += bytes;
    room -= bytes;
    if (stored_bytes_ < output.memory.size()) continue;
    ++stored_outputs_;
    stored_bytes_ = 0;
  }
  return stored_outputs_ == outputs_.size();
}

std::unique_ptr<Run> run_with(PrivateOutputs outputs, std::unique_ptr<Run> run) {
  return std::make_unique<PrivateRun>(std::move(outputs), std::move(run));
}

}  // namespace hvd
