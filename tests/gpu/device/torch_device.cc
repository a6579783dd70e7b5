// A device for a torch without CUDA: memory, streams and events are those of the stand-in driver.
// Loaded by tests through torch.ops.load_library.
//
// Operators are computed on the host: their inputs are copied there, which waits for the current
// stream, and copying the results back is queued on it. So all memory of the device is written by
// queued work only, as on a GPU, and the driver checks that each access waits for what it needs.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <map>
#include <mutex>

#include "tests/gpu/device/stand_in.h"

namespace hvd::test {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr size_t kMostGpus = 16;

thread_local DeviceIndex current_gpu = 0;
thread_local StreamHandle current_streams[kMostGpus];  // nullptr: the legacy stream

StreamHandle current_stream(int gpu) { return current_streams[gpu]; }
StreamHandle handle_of(const Stream& stream) {
  return reinterpret_cast<StreamHandle>(static_cast<uintptr_t>(stream.id()));
}
Stream stream_of(StreamHandle handle, int gpu) {
  return Stream(Stream::UNSAFE, Device(kType, static_cast<DeviceIndex>(gpu)),
                static_cast<c10::StreamId>(reinterpret_cast<uintptr_t>(handle)));
}
Device indexed(Device device) { return device.has_index() ? device : Device(kType, current_gpu); }

// ---- memory

/// Like the allocator of torch.cuda: a freed block is used again at once, for work on the stream on
/// which it was allocated. The driver gets nothing back.
class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const Device device(kType, current_gpu);
    if (bytes == 0) return {nullptr, device};
    auto* const block = new Block{(bytes + kUnit - 1) / kUnit * kUnit, current_gpu,
                                  current_stream(current_gpu), nullptr};
    block->address = taken(*block);
    return {block->address, block, &free, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "storages of this device cannot be copied");
  }

 private:
  struct Block {
    size_t bytes;
    int gpu;
    StreamHandle stream;
    void* address;
  };
  struct Cache {
    std::mutex mutex;
    std::map<std::tuple<int, StreamHandle, size_t>, std::vector<void*>> free;
  };
  static constexpr size_t kUnit = 512;

  static Cache& cache() {
    static auto* const one = new Cache;
    return *one;
  }
  static std::vector<void*>& free_like(const Block& block) {
    return cache().free[{block.gpu, block.stream, block.bytes}];
  }
  static void* taken(const Block& block) {
    const std::lock_guard lock(cache().mutex);
    std::vector<void*>& free = free_like(block);
    if (free.empty()) {
      const OnGpu on(block.gpu);
      return test::allocate(block.bytes);
    }
    void* const address = free.back();
    free.pop_back();
    return address;
  }
  static void free(void* argument) {
    const std::unique_ptr<Block> block(static_cast<Block*>(argument));
    const std::lock_guard lock(cache().mutex);
    free_like(*block).push_back(block->address);
  }
};
Allocator allocator;
REGISTER_ALLOCATOR(kType, &allocator);

// ---- devices, streams, events

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  Device exchangeDevice(Device device) const override {
    const Device former(kType, current_gpu);
    current_gpu = device.index();
    return former;
  }
  Device getDevice() const override { return {kType, current_gpu}; }
  void setDevice(Device device) const override { current_gpu = device.index(); }
  void uncheckedSetDevice(Device device) const noexcept override { current_gpu = device.index(); }
  DeviceIndex deviceCount() const noexcept override {
    return static_cast<DeviceIndex>(gpu_count());
  }

  Stream getStream(Device device) const override {
    const int gpu = indexed(device).index();
    return stream_of(current_stream(gpu), gpu);
  }
  Stream getDefaultStream(Device device) const override {
    return stream_of(nullptr, indexed(device).index());
  }
  Stream getNewStream(Device device, int) const override {
    const int gpu = indexed(device).index();
    const OnGpu on(gpu);
    return stream_of(make_stream(), gpu);
  }
  Stream getStreamFromGlobalPool(Device device, bool) const override {
    return getNewStream(device, 0);
  }
  Stream exchangeStream(Stream stream) const override {
    const Stream former = getStream(stream.device());
    current_streams[stream.device_index()] = handle_of(stream);
    return former;
  }
  bool queryStream(const Stream& stream) const override {
    const OnGpu on(stream.device_index());
    return is_done(handle_of(stream));
  }
  void synchronizeStream(const Stream& stream) const override {
    const OnGpu on(stream.device_index());
    finish(handle_of(stream));
  }

  struct Event {
    EventHandle handle;
    int gpu;
  };
  void record(void** kept, const Stream& stream, DeviceIndex, c10::EventFlag) const override {
    const OnGpu on(stream.device_index());
    if (*kept == nullptr) *kept = new Event{make_event(), stream.device_index()};
    test::record(static_cast<Event*>(*kept)->handle, handle_of(stream));
  }
  void block(void* event, const Stream& stream) const override {
    const OnGpu on(stream.device_index());
    if (event != nullptr) wait_for(handle_of(stream), static_cast<Event*>(event)->handle);
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    const OnGpu on(static_cast<Event*>(event)->gpu);
    return is_done(static_cast<Event*>(event)->handle);
  }
  void synchronizeEvent(void* event) const override {
    while (!queryEvent(event)) {
    }
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override {
    const std::unique_ptr<Event> ours(static_cast<Event*>(event));
    if (ours == nullptr) return;
    const OnGpu on(ours->gpu);
    destroy(ours->handle);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return gpu_count() > 0; }
  void init() const override {}
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(gpu_count()); }
  DeviceIndex getCurrentDevice() const override { return current_gpu; }
  void setCurrentDevice(DeviceIndex gpu) const override { current_gpu = gpu; }
  DeviceIndex exchangeDevice(DeviceIndex gpu) const override {
    return std::exchange(current_gpu, gpu);
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex gpu) const override {
    return std::exchange(current_gpu, gpu >= 0 ? gpu : current_gpu);
  }
};
const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

// ---- copies

/// Bytes from the first to behind the last element.
size_t span_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  int64_t elements = 1;
  for (int64_t i = 0; i < tensor.dim(); ++i)
    elements += (tensor.size(i) - 1) * std::max<int64_t>(tensor.stride(i), 0);
  return static_cast<size_t>(elements) * tensor.element_size();
}

/// Host memory with the shape and strides of `like`.
at::Tensor laid_out(void* memory, const at::Tensor& like, std::function<void(void*)> free) {
  return at::from_blob(memory, like.sizes(), like.strides(), std::move(free),
                       at::TensorOptions(like.scalar_type()));
}

/// A copy in host memory of a tensor of the device. Blocks until the current stream is there.
at::Tensor fetched(const at::Tensor& tensor) {
  const size_t bytes = span_of(tensor);
  const at::Tensor copy = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  if (bytes > 0) {
    const OnGpu on(tensor.device().index());
    const StreamHandle stream = current_stream(tensor.device().index());
    const void* const from = tensor.data_ptr();
    enqueue(stream, "a copy to the host", {{from, bytes, false}},
            [=, to = copy.data_ptr()] { std::memcpy(to, from, bytes); });
    finish(stream);
  }
  return laid_out(copy.data_ptr(), tensor, [copy](void*) {});
}

/// Queues the writing of a host tensor to one of the device, and returns.
void store(const at::Tensor& from, const at::Tensor& to) {
  const size_t bytes = span_of(to);
  if (bytes == 0) return;
  const at::Tensor staged = from.detach().expand(to.sizes()).to(to.scalar_type()).clone();
  const at::Tensor written = laid_out(to.data_ptr(), to, [](void*) {});
  const OnGpu on(to.device().index());
  enqueue(current_stream(to.device().index()), "a copy to the device",
          {{to.data_ptr(), bytes, true}}, [=] { written.copy_(staged); });
}

void copy_within(const at::Tensor& from, const at::Tensor& to) {
  const size_t bytes = span_of(to);
  if (bytes == 0) return;
  const OnGpu on(to.device().index());
  void* const out = to.data_ptr();
  const void* const in = from.data_ptr();
  enqueue(current_stream(to.device().index()), "a copy of the framework",
          {{in, bytes, false}, {out, bytes, true}}, [=] { std::memmove(out, in, bytes); });
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  const bool is_plain = from.is_contiguous() && to.is_contiguous() && from.dtype() == to.dtype() &&
                        from.sizes() == to.sizes() && from.device() == to.device();
  if (to.is_cpu()) {
    to.copy_(fetched(from));
  } else if (is_plain) {
    copy_within(from, to);
  } else {
    store(from.is_cpu() ? from : fetched(from), to);
  }
  return to;
}

// ---- operators

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard on(indexed(device.value_or(Device(kType))));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<Device> device, std::optional<bool>) {
  const c10::DeviceGuard on(indexed(device.value_or(Device(kType))));
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &allocator,
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size,
                         std::optional<at::MemoryFormat>) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * self.element_size();
  c10::Storage storage = self.storage();
  if (bytes > storage.nbytes()) {
    const c10::DeviceGuard on(self.device());
    storage.set_data_ptr(allocator.allocate(bytes));
    storage.set_nbytes(bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, c10::SymInt offset,
                        c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  at::TensorImpl* const impl = self.unsafeGetTensorImpl();
  impl->set_storage_and_dtype(std::move(storage), self.dtype());
  impl->set_sizes_and_strides(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                              offset.expect_int());
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage storage) {
  const auto count = static_cast<int64_t>(storage.nbytes() / self.element_size());
  return set_storage(self, std::move(storage), 0, {count}, {1});
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  auto made = at::detail::make_tensor<at::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(self.storage()), self.key_set(), self.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset.has_value() ? offset->expect_int() : self.storage_offset());
  return made;
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Scalar local_scalar(const at::Tensor& tensor) { return fetched(tensor).item(); }

// ---- layers of networks of images, which the fallback does not have or does not complete

std::optional<at::Tensor> fetched(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? std::optional(fetched(*tensor)) : std::nullopt;
}
at::Tensor on_device(const at::Tensor& host, const at::Tensor& like) {
  return host.defined() ? host.to(like.device()) : host;
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  return on_device(at::convolution(fetched(input), fetched(weight), fetched(bias), stride, padding,
                                   dilation, transposed, output_padding, groups),
                   input);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> wanted) {
  const int64_t outputs = gradient.size(1);
  const auto [to_input, to_weight, to_bias] = at::convolution_backward(
      fetched(gradient), fetched(input), fetched(weight), at::IntArrayRef(outputs), stride, padding,
      dilation, transposed, output_padding, groups, wanted);
  return {on_device(to_input, input), on_device(to_weight, input), on_device(to_bias, input)};
}

/// The fallback does not store the running statistics.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& mean,
    const std::optional<at::Tensor>& variance, bool training, double momentum, double epsilon) {
  const auto new_mean = fetched(mean), new_variance = fetched(variance);
  const auto [made, saved_mean, saved_deviation] =
      at::native_batch_norm(fetched(input), fetched(weight), fetched(bias), new_mean, new_variance,
                            training, momentum, epsilon);
  if (training && new_mean) store(*new_mean, *mean);
  if (training && new_variance) store(*new_variance, *variance);
  return {on_device(made, input), on_device(saved_mean, input), on_device(saved_deviation, input)};
}

// ---- sparse tensors, whose indices and values are in device memory

at::Tensor coalesce(const at::Tensor& self) {
  const at::Tensor host =
      at::_sparse_coo_tensor_unsafe(fetched(self._indices()), fetched(self._values()), self.sizes())
          .coalesce();
  return at::_sparse_coo_tensor_unsafe(host._indices().to(self.device()),
                                       host._values().to(self.device()), self.sizes(),
                                       self.options(), true);
}

void on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("resize_", resize);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
  m.impl("native_batch_norm", batch_norm);
}
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_coo_tensor_with_dims_and_tensors",
         at::native::new_with_dims_and_tensor_sparse_symint);
  m.impl("_coalesce", coalesce);
  m.impl("_coalesced_", at::native::_coalesced_sparse_);
  m.impl("is_coalesced", at::native::is_coalesced_sparse);
  m.impl("_indices", at::native::_indices_sparse);
  m.impl("_values", at::native::_values_sparse);
  m.impl("indices", at::native::indices_sparse);
  m.impl("values", at::native::values_sparse);
  m.impl("_nnz", at::native::_nnz_sparse);
  m.impl("sparse_dim", at::native::sparse_dim_sparse);
  m.impl("dense_dim", at::native::dense_dim_sparse);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_host>());
}
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
}

}  // namespace
}  // namespace hvd::test
