// The stand-in for libcuda.so.1: modules and kernels. The kernels of a module are those that its
// PTX names. They run the same source, compiled for the host.
#include <cstring>
#include <string>
#include <tuple>

#include "core/device/kernels/copy_scale.cu"
#include "core/device/kernels/reduce.cu"
#include "tests/fake_cuda/state.h"

namespace {

using fake::state;
using hvd::device::Piece;
using hvd::device::Pieces;
using hvd::device::Sources;

struct GridSize {
  unsigned blocks_x, blocks_y, threads;
};

/// Runs a kernel for every thread of a grid.
template <auto kernel, class... Arguments>
void run_grid(const GridSize& size, const std::tuple<Arguments...>& arguments) {
  fake::GridPlace& place = fake::grid_place;
  place.step = static_cast<unsigned long long>(size.blocks_x) * size.threads;
  for (place.row = 0; place.row < size.blocks_y; ++place.row) {
    for (place.first = 0; place.first < place.step; ++place.first) std::apply(kernel, arguments);
  }
}

using Task = std::function<void()>;

/// Copies the arguments of a launch, as the driver does.
template <auto kernel, class... Arguments>
Task task_of(void (*)(const Arguments&...), const GridSize& size, void** addresses) {
  std::tuple<Arguments...> arguments;
  size_t index = 0;
  std::apply(
      [&](auto&... argument) {
        (std::memcpy(static_cast<void*>(&argument), addresses[index++], sizeof(argument)), ...);
      },
      arguments);
  return [=] { run_grid<kernel>(size, arguments); };
}
template <auto kernel>
Task task_of(const GridSize& size, void** addresses) {
  return task_of<kernel>(kernel, size, addresses);
}

struct KernelRow;
std::vector<fake::Access> accesses_of_pieces(const KernelRow& kernel, unsigned rows,
                                             void** arguments);
std::vector<fake::Access> accesses_of_sources(const KernelRow& kernel, unsigned rows,
                                              void** arguments);

struct KernelRow {
  const char* name;
  Task (*task)(const GridSize&, void**);
  size_t read_bytes, written_bytes;  ///< per element
  std::vector<fake::Access> (*accesses)(const KernelRow&, unsigned rows,
                                        void** arguments) = accesses_of_pieces;
};
constexpr KernelRow kKernels[] = {
    {"hvd_copy", task_of<hvd_copy>, 1, 1},
    {"hvd_scale_f32", task_of<hvd_scale_f32>, 4, 4},
    {"hvd_scale_f64", task_of<hvd_scale_f64>, 8, 8},
    {"hvd_scale_f16", task_of<hvd_scale_f16>, 2, 2},
    {"hvd_scale_bf16", task_of<hvd_scale_bf16>, 2, 2},
    {"hvd_scale_f32_f16", task_of<hvd_scale_f32_f16>, 4, 2},
    {"hvd_scale_f32_bf16", task_of<hvd_scale_f32_bf16>, 4, 2},
    {"hvd_scale_f16_f32", task_of<hvd_scale_f16_f32>, 2, 4},
    {"hvd_scale_bf16_f32", task_of<hvd_scale_bf16_f32>, 2, 4},
    {"hvd_reduce_f32", task_of<hvd_reduce_f32>, 4, 4, accesses_of_sources},
    {"hvd_reduce_f64", task_of<hvd_reduce_f64>, 8, 8, accesses_of_sources},
    {"hvd_reduce_f16", task_of<hvd_reduce_f16>, 2, 2, accesses_of_sources},
    {"hvd_reduce_bf16", task_of<hvd_reduce_bf16>, 2, 2, accesses_of_sources},
    {"hvd_reduce_i8", task_of<hvd_reduce_i8>, 1, 1, accesses_of_sources},
    {"hvd_reduce_u8", task_of<hvd_reduce_u8>, 1, 1, accesses_of_sources},
    {"hvd_reduce_i32", task_of<hvd_reduce_i32>, 4, 4, accesses_of_sources},
    {"hvd_reduce_i64", task_of<hvd_reduce_i64>, 8, 8, accesses_of_sources},
};

std::vector<fake::Access> accesses_of_pieces(const KernelRow& kernel, unsigned rows,
                                             void** arguments) {
  const auto& pieces = *static_cast<const Pieces*>(arguments[0]);
  std::vector<fake::Access> accesses;
  for (unsigned row = 0; row < rows; ++row) {
    const Piece& piece = pieces.piece[row];
    accesses.push_back({piece.from, piece.count * kernel.read_bytes, false});
    accesses.push_back({piece.to, piece.count * kernel.written_bytes, true});
  }
  return accesses;
}

std::vector<fake::Access> accesses_of_sources(const KernelRow& kernel, unsigned, void** arguments) {
  const auto& all = *static_cast<const Sources*>(arguments[0]);
  std::vector<fake::Access> accesses;
  for (unsigned i = 0; i < all.sources; ++i)
    accesses.push_back({all.from[i], all.count * kernel.read_bytes, false});
  accesses.push_back({all.to, all.count * kernel.written_bytes, true});
  return accesses;
}

}  // namespace

namespace hvd::device {

struct FunctionObject {
  ModuleHandle module;
  const KernelRow* kernel;
};
struct ModuleObject {
  ContextHandle context;
  std::string ptx;
  std::vector<std::unique_ptr<FunctionObject>> functions{};
};

}  // namespace hvd::device

namespace {

/// Modules are never unloaded by the runtime.
std::vector<std::unique_ptr<hvd::device::ModuleObject>>& modules() {
  static auto* const all = new std::vector<std::unique_ptr<hvd::device::ModuleObject>>;
  return *all;
}

/// The version of PTX in tenths, and the newest that a driver of some CUDA compiles.
int ptx_version(const std::string& ptx) {
  const size_t at = ptx.find(".version ");
  if (at == std::string::npos) return 0;
  return std::atoi(ptx.c_str() + at + 9) * 10 + std::atoi(ptx.c_str() + at + 11);
}
int newest_ptx(int driver_version) {
  if (driver_version < 10000) return 60;
  return driver_version / 1000 * 10 - 40 + driver_version % 1000 / 10 + 3;  // 12.0: 8.3 or less
}

}  // namespace

using namespace hvd::device;

FAKE_EXPORT Result cuModuleLoadData(ModuleHandle* module, const void* image) {
  FAKE_CALL(cuModuleLoadData);
  fake::not_during_capture();
  const std::string ptx = static_cast<const char*>(image);
  if (ptx_version(ptx) == 0) return kInvalidImage;
  if (ptx_version(ptx) >
      newest_ptx(static_cast<int>(fake::number("FAKE_CUDA_DRIVER_VERSION", 12090))))
    return kUnsupportedPtxVersion;
  modules().push_back(std::make_unique<ModuleObject>(ModuleObject{fake::current_context(), ptx}));
  *module = modules().back().get();
  return kSuccess;
}

FAKE_EXPORT Result cuModuleGetFunction(FunctionHandle* function, ModuleHandle module,
                                       const char* name) {
  FAKE_CALL(cuModuleGetFunction);
  fake::must_be_current(module->context, "module");
  if (module->ptx.find(".visible .entry " + std::string(name) + "(") == std::string::npos)
    return kNotFound;
  for (const KernelRow& kernel : kKernels) {
    if (std::strcmp(kernel.name, name) != 0) continue;
    module->functions.push_back(std::make_unique<FunctionObject>(FunctionObject{module, &kernel}));
    *function = module->functions.back().get();
    return kSuccess;
  }
  fake::misuse("kernel " + std::string(name) + " is not compiled into the stand-in");
}

FAKE_EXPORT Result cuLaunchKernel(FunctionHandle function, unsigned grid_x, unsigned grid_y,
                                  unsigned grid_z, unsigned block_x, unsigned block_y,
                                  unsigned block_z, unsigned shared_bytes, StreamHandle stream,
                                  void** parameters, void** extra) {
  FAKE_CALL(cuLaunchKernel);
  fake::must_be_current(function->module->context, "kernel");
  stream = fake::resolve(stream);
  fake::must_be_current(stream->context, "stream");
  const bool simulated = grid_z == 1 && block_y == 1 && block_z == 1 && shared_bytes == 0 &&
                         extra == nullptr && grid_y <= kMaxPieces;
  if (!simulated) fake::misuse("a launch of this form is not simulated");
  if (grid_x == 0 || grid_y == 0 || block_x == 0 || block_x > 1024) return kInvalidValue;
  const KernelRow& kernel = *function->kernel;
  fake::enqueue(stream, kernel.name, kernel.accesses(kernel, grid_y, parameters),
                kernel.task({grid_x, grid_y, block_x}, parameters));
  return kSuccess;
}
