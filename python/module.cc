// horovod._core: the C interface for Python. Thin: numbers in, status out. No thread of the runtime
// ever takes the GIL; objects that the engine is done with wait in a list until the next call from
// Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "horovod/horovod.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace {

// ---- objects that keep tensors alive
// ---------------------------------------------------------------

/// References that the engine has finished with, to be dropped by a thread that holds the GIL.
/// Never destroyed: the engine may release after the interpreter is gone.
class Released {
 public:
  void add(PyObject* object) {
    const std::lock_guard lock(mutex_);
    objects_.push_back(object);
  }
  /// With the GIL.
  void drop_all() {
    std::vector<PyObject*> dropped;
    {
      const std::lock_guard lock(mutex_);
      dropped.swap(objects_);
    }
    for (PyObject* object : dropped) Py_DECREF(object);
  }

 private:
  std::mutex mutex_;
  std::vector<PyObject*> objects_;
};

Released& released() {
  static Released& instance = *new Released;
  return instance;
}

// ---- errors
// ----------------------------------------------------------------------------------------

nb::object exception_class(const char* name) {
  return nb::module_::import_("horovod.common.exceptions").attr(name);
}

/// Raises what the table in the documentation of _core says for a status.
void check(hvd_status status) {
  if (status == HVD_OK) return;
  const std::string text = hvd_last_error();
  switch (status) {
    case HVD_INVALID_ARGUMENT:
    case HVD_NOT_INITIALIZED:
      throw nb::value_error(text.c_str());
    case HVD_MISMATCH:
      PyErr_SetString(exception_class("HorovodMismatchError").ptr(), text.c_str());
      throw nb::python_error();
    default:
      PyErr_SetString(exception_class("HorovodInternalError").ptr(), text.c_str());
      throw nb::python_error();
  }
}

/// Whatever goes wrong at the start is a ValueError.
void check_start(hvd_status status) {
  if (status == HVD_OK) return;
  throw nb::value_error(
      ("Horovod could not be initialised: " + std::string(hvd_last_error())).c_str());
}

template <class Call>
hvd_status without_gil(Call call) {
  nb::gil_scoped_release unlocked;
  return call();
}

// ---- tensors
// -----------------------------------------------------------------------------------

/// DLPack's exchange interface for C: a type of tensors offers it as an attribute, a capsule, so
/// that others can look into a tensor without making a Python object of each thing they ask for.
/// Asking torch for address, shape, dtype, layout, device and contiguity takes 0.55 us, this 0.03.
namespace dlpack {

struct Tensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t dimensions;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

struct Exchange {
  uint32_t major;
  uint32_t minor;
  Exchange* previous;
  void* others[3];
  int (*borrow)(void* object, Tensor* tensor);  ///< 0 on success, else a Python error is set
};

constexpr uint32_t kMajor = 1;
constexpr int32_t kCpu = 1;
enum Code : uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kBool = 6 };

std::optional<hvd_dtype> dtype_of(const Tensor& tensor) {
  if (tensor.lanes != 1) return std::nullopt;
  switch (tensor.code << 8 | tensor.bits) {
    case kUint << 8 | 8:
      return HVD_UINT8;
    case kInt << 8 | 8:
      return HVD_INT8;
    case kUint << 8 | 16:
      return HVD_UINT16;
    case kInt << 8 | 16:
      return HVD_INT16;
    case kInt << 8 | 32:
      return HVD_INT32;
    case kInt << 8 | 64:
      return HVD_INT64;
    case kFloat << 8 | 16:
      return HVD_FLOAT16;
    case kFloat << 8 | 32:
      return HVD_FLOAT32;
    case kFloat << 8 | 64:
      return HVD_FLOAT64;
    case kBool << 8 | 8:
      return HVD_BOOL;
    case kBfloat << 8 | 16:
      return HVD_BFLOAT16;
    default:
      return std::nullopt;
  }
}

bool is_contiguous(const Tensor& tensor) {
  int64_t expected = 1;
  for (int32_t i = tensor.dimensions; i-- > 0;) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

}  // namespace dlpack

/// Looks into the tensors of one framework.
class Reader {
 public:
  /// Of `types` exactly, not of their subclasses, whose data may be elsewhere.
  explicit Reader(nb::tuple types) : types_(std::move(types)) {
    for (nb::handle type : types_) {
      const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
      auto* exchange = static_cast<dlpack::Exchange*>(
          PyCapsule_CheckExact(capsule.ptr())
              ? PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api")
              : nullptr);
      while (exchange != nullptr && exchange->major != dlpack::kMajor)
        exchange = exchange->previous;
      exchanges_.push_back(exchange);
    }
  }

  /// False for all but dense, contiguous host memory of a type that the runtime knows, and where
  /// the framework does not offer the interface. The shape is the tensor's own.
  bool read(PyObject* object, hvd_tensor& read) const {
    const dlpack::Exchange* exchange = exchange_of(object);
    if (exchange == nullptr) return false;
    dlpack::Tensor tensor;
    if (exchange->borrow(object, &tensor) != 0) {
      PyErr_Clear();
      return false;
    }
    const auto dtype = dlpack::dtype_of(tensor);
    if (!dtype || tensor.device_type != dlpack::kCpu || !dlpack::is_contiguous(tensor))
      return false;
    read = {static_cast<char*>(tensor.data) + tensor.byte_offset, tensor.shape, tensor.dimensions,
            *dtype};
    return true;
  }

 private:
  const dlpack::Exchange* exchange_of(PyObject* object) const {
    for (size_t i = 0; i < exchanges_.size(); ++i) {
      if (types_[i].ptr() == reinterpret_cast<PyObject*>(Py_TYPE(object))) return exchanges_[i];
    }
    return nullptr;
  }

  nb::tuple types_;
  std::vector<const dlpack::Exchange*> exchanges_;
};

// ---- operations
// ------------------------------------------------------------------------------------

using Address = uintptr_t;
using Input = std::tuple<Address, std::vector<int64_t>, int>;

/// Submits what keeps `owner` alive. With the GIL: nothing here waits, and giving the GIL away and
/// taking it back costs as much as the rest.
hvd_handle queue(hvd_request& request, nb::handle owner) {
  request.release = [](void* object) { released().add(static_cast<PyObject*>(object)); };
  request.owner = owner.ptr();
  owner.inc_ref();
  hvd_handle handle = 0;
  const hvd_status status = hvd_submit(&request, &handle);
  if (status != HVD_OK) owner.dec_ref();
  check(status);
  return handle;
}

/// The tensors of one operation as the C interface has them; the usual one or two need no memory.
class TensorList {
 public:
  TensorList(const Reader& reader, nb::handle tensors) {
    const bool is_list = PyList_CheckExact(tensors.ptr());
    count_ = is_list ? nb::len(tensors) : 1;
    if (count_ > kFew) many_.resize(count_);
    for (size_t i = 0; i < count_ && is_readable_; ++i) {
      PyObject* item = is_list ? PyList_GET_ITEM(tensors.ptr(), i) : tensors.ptr();
      is_readable_ = reader.read(item, data()[i]);
    }
  }

  bool is_readable() const { return is_readable_; }
  bool has_one_type_for_every_op() {
    if (count_ == 0) return false;
    const hvd_dtype dtype = data()[0].dtype;
    if (dtype == HVD_BOOL || dtype == HVD_UINT16) return false;
    return std::all_of(data(), data() + count_, [=](auto& t) { return t.dtype == dtype; });
  }
  size_t count() const { return count_; }
  hvd_tensor* data() { return count_ > kFew ? many_.data() : few_; }

 private:
  static constexpr size_t kFew = 4;
  hvd_tensor few_[kFew]{};
  std::vector<hvd_tensor> many_;
  size_t count_ = 0;
  bool is_readable_ = true;
};

constexpr char kReader[] = "horovod.reader";

/// A capsule and no class of its own: one stays alive until the interpreter is gone.
nb::capsule make_reader(nb::tuple types) {
  return nb::capsule(new Reader(std::move(types)), kReader,
                     [](void* reader) noexcept { delete static_cast<Reader*>(reader); });
}

hvd_handle reduce(const nb::capsule& readers, const char* label, const char* name,
                  nb::handle inputs, nb::handle outputs, int op, double prescale, double postscale,
                  int process_set) {
  released().drop_all();
  const auto& reader = *static_cast<const Reader*>(readers.data(kReader));
  TensorList from(reader, inputs);
  if (!from.is_readable()) return 0;
  if (!from.has_one_type_for_every_op()) return 0;
  std::optional<TensorList> to;
  if (!outputs.is(inputs)) to.emplace(reader, outputs);
  if (to && (!to->is_readable() || to->count() != from.count())) return 0;
  std::vector<void*> addresses(from.count());
  for (size_t i = 0; i < addresses.size(); ++i)
    addresses[i] = to ? to->data()[i].data : from.data()[i].data;
  const std::string full_name = std::string(label) + '.' + name;
  hvd_request request{};
  request.kind = HVD_ALLREDUCE;
  request.name = full_name.c_str();
  request.process_set = process_set;
  request.count = static_cast<int32_t>(from.count());
  request.inputs = from.data();
  request.outputs = addresses.data();
  request.op = static_cast<hvd_reduce_op>(op);
  request.prescale = prescale;
  request.postscale = postscale;
  return to ? queue(request, nb::make_tuple(inputs, outputs)) : queue(request, inputs);
}

hvd_handle submit(int kind, const std::string& name, nb::sequence inputs, nb::object outputs,
                  nb::object owner, int op, double prescale, double postscale, int root,
                  int process_set, const std::optional<std::vector<int32_t>>& splits) {
  released().drop_all();
  const size_t count = nb::len(inputs);
  std::vector<std::vector<int64_t>> shapes(count);
  std::vector<hvd_tensor> tensors(count);
  std::vector<void*> addresses(count);
  size_t i = 0;
  for (nb::handle item : inputs) {
    const nb::tuple input = nb::cast<nb::tuple>(item);
    for (nb::handle dimension : nb::cast<nb::tuple>(input[1]))
      shapes[i].push_back(nb::cast<int64_t>(dimension));
    tensors[i] = {reinterpret_cast<void*>(nb::cast<Address>(input[0])), shapes[i].data(),
                  static_cast<int32_t>(shapes[i].size()),
                  static_cast<hvd_dtype>(nb::cast<int>(input[2]))};
    ++i;
  }
  if (!outputs.is_none()) {
    if (nb::len(outputs) != count) throw nb::value_error("as many outputs as inputs are needed");
    i = 0;
    for (nb::handle item : nb::cast<nb::sequence>(outputs))
      addresses[i++] = reinterpret_cast<void*>(nb::cast<Address>(item));
  }
  hvd_request request{};
  request.kind = static_cast<hvd_kind>(kind);
  request.name = name.c_str();
  request.process_set = process_set;
  request.count = static_cast<int32_t>(count);
  request.inputs = tensors.data();
  request.outputs = outputs.is_none() ? nullptr : addresses.data();
  request.op = static_cast<hvd_reduce_op>(op);
  request.prescale = prescale;
  request.postscale = postscale;
  request.root = root;
  constexpr int32_t kNoSplits = 0;
  if (splits) {  // an empty list is not the same as none
    request.splits = splits->empty() ? &kNoSplits : splits->data();
    request.split_count = static_cast<int32_t>(splits->size());
  }
  return queue(request, owner);
}

hvd_status wait_for(hvd_handle handle) {
  if (hvd_poll(handle)) return hvd_wait(handle);
  return without_gil([=] { return hvd_wait(handle); });
}

void wait(hvd_handle handle) {
  const hvd_status status = wait_for(handle);
  released().drop_all();
  check(status);
}

void finish(hvd_handle handle) {
  const hvd_status status = wait_for(handle);
  hvd_free(handle);
  released().drop_all();
  check(status);
}

nb::tuple take_output(hvd_handle handle, int index) {
  hvd_tensor output{};
  check(hvd_take_output(handle, index, &output));
  const size_t element_bytes[] = {1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2};
  size_t bytes = element_bytes[output.dtype];
  nb::list shape;
  for (int32_t i = 0; i < output.dimensions; ++i) {
    bytes *= static_cast<size_t>(output.shape[i]);
    shape.append(output.shape[i]);
  }
  nb::capsule owner(output.data, [](void* memory) noexcept { hvd_free_memory(memory); });
  nb::ndarray<nb::memview, uint8_t, nb::ndim<1>> view(output.data, {bytes}, owner);
  return nb::make_tuple(nb::cast(view), nb::tuple(shape));
}

int32_t last_joined(hvd_handle handle) {
  int32_t rank = 0;
  check(hvd_get_last_joined(handle, &rank));
  return rank;
}

hvd_rank_list list_of(const std::vector<int32_t>& ranks) {
  return {ranks.data(), static_cast<int32_t>(ranks.size())};
}

void init(const std::vector<std::vector<int32_t>>& process_sets, bool dynamic) {
  std::vector<hvd_rank_list> lists;
  for (const auto& ranks : process_sets) lists.push_back(list_of(ranks));
  const hvd_init_options options{lists.data(), static_cast<int32_t>(lists.size()), dynamic};
  check_start(without_gil([&] { return hvd_init_with(&options); }));
}

int32_t add_process_set(const std::vector<int32_t>& ranks) {
  int32_t id = 0;
  check(without_gil([&] { return hvd_add_process_set(list_of(ranks), &id); }));
  return id;
}

nb::tuple process_set(int32_t id) {
  int32_t size = 0, rank = 0;
  check(hvd_get_process_set(id, &size, &rank));
  return nb::make_tuple(size, rank);
}

std::vector<int32_t> process_set_ranks(int32_t id) {
  int32_t size = 0, rank = 0;
  check(hvd_get_process_set(id, &size, &rank));
  std::vector<int32_t> ranks(static_cast<size_t>(size));
  check(hvd_get_process_set_ranks(id, ranks.data(), size));
  return ranks;
}

hvd_world world() {
  hvd_world world{};
  check(hvd_get_world(&world));
  return world;
}

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "The runtime of Horovod; see _core.pyi.";
  m.attr("ALLREDUCE") = static_cast<int>(HVD_ALLREDUCE);
  m.attr("ALLGATHER") = static_cast<int>(HVD_ALLGATHER);
  m.attr("BROADCAST") = static_cast<int>(HVD_BROADCAST);
  m.attr("ALLTOALL") = static_cast<int>(HVD_ALLTOALL);
  m.attr("REDUCESCATTER") = static_cast<int>(HVD_REDUCESCATTER);
  m.attr("BARRIER") = static_cast<int>(HVD_BARRIER);
  m.attr("JOIN") = static_cast<int>(HVD_JOIN);

  nb::class_<hvd_world>(m, "World")
      .def_ro("rank", &hvd_world::rank)
      .def_ro("size", &hvd_world::size)
      .def_ro("local_rank", &hvd_world::local_rank)
      .def_ro("local_size", &hvd_world::local_size)
      .def_ro("cross_rank", &hvd_world::cross_rank)
      .def_ro("cross_size", &hvd_world::cross_size)
      .def_ro("homogeneous", &hvd_world::homogeneous)
      .def_ro("generation", &hvd_world::generation);

  m.def("version", [] { return std::string(hvd_version()); });
  m.def("knobs", [] { return nb::module_::import_("json").attr("loads")(hvd_knobs()); });
  m.def("init", &init, "process_sets"_a = nb::list(), "dynamic"_a = false);
  m.def("shutdown", [] {
    check(without_gil(hvd_shutdown));
    released().drop_all();
  });
  m.def("is_initialized", &hvd_is_initialized);
  m.def("world", &world);
  m.def("add_process_set", &add_process_set, "ranks"_a);
  m.def(
      "remove_process_set",
      [](int32_t id) { check(without_gil([=] { return hvd_remove_process_set(id); })); }, "id"_a);
  m.def("process_set", &process_set, "id"_a);
  m.def("process_set_ranks", &process_set_ranks, "id"_a);
  m.def("submit", &submit, "kind"_a, "name"_a, "inputs"_a, "outputs"_a.none(), "owner"_a.none(),
        "op"_a = 1, "prescale"_a = 1.0, "postscale"_a = 1.0, "root"_a = 0, "process_set"_a = 0,
        "splits"_a.none() = nb::none());
  m.def("reader", &make_reader, "types"_a);
  m.def("reduce", &reduce, "reader"_a, "label"_a, "name"_a, "inputs"_a, "outputs"_a, "op"_a,
        "prescale"_a, "postscale"_a, "process_set"_a);
  m.def("poll", &hvd_poll, "handle"_a);
  m.def("wait", &wait, "handle"_a);
  m.def("finish", &finish, "handle"_a);
  m.def("output", &take_output, "handle"_a, "index"_a);
  m.def("last_joined", &last_joined, "handle"_a);
  m.def("free", &hvd_free, "handle"_a);
  m.def(
      "start_timeline",
      [](const std::string& path, bool mark_cycles) {
        check(without_gil([&] { return hvd_start_timeline(path.c_str(), mark_cycles); }));
      },
      "path"_a, "mark_cycles"_a = false);
  m.def("stop_timeline", [] { check(without_gil(hvd_stop_timeline)); });
}
