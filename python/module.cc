// horovod._core: the C interface for Python. Thin: numbers in, status out. No thread of the runtime
// ever takes the GIL; objects that the engine is done with wait in a list until the next call from
// Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "horovod/horovod.h"
#include "python/gil.h"
#include "python/gradient_notes.h"
#include "python/lent_memory.h"
#include "python/released.h"
#include "python/tensor_reader.h"

namespace nb = nanobind;
using hvd::python::GradientNotes;
using hvd::python::keep;
using hvd::python::Loan;
using hvd::python::Reader;
using hvd::python::released;
using hvd::python::stopping_at_the_end;
using hvd::python::TensorList;
using hvd::python::Unlocked;
using hvd::python::without_gil;
using nb::literals::operator""_a;

namespace {

// ---- errors
// ----------------------------------------------------------------------------------------

nb::object exception_class(const char* name) {
  PyObject* const module =
      stopping_at_the_end([] { return PyImport_ImportModule("horovod.common.exceptions"); });
  if (module == nullptr) throw nb::python_error();
  return nb::steal(module).attr(name);
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

// ---- operations
// ------------------------------------------------------------------------------------

using Address = uintptr_t;
using Input = std::tuple<Address, std::vector<int64_t>, int>;

/// Submits what keeps `owner` alive. With the GIL: nothing here waits, and giving the GIL away and
/// taking it back costs as much as the rest.
hvd_handle queue(hvd_request request, nb::handle owner) {
  keep(request, owner);
  hvd_handle handle = 0;
  const hvd_status status = hvd_submit(&request, &handle);
  if (status != HVD_OK) owner.dec_ref();
  check(status);
  return handle;
}

/// A capsule and no class of its own: one stays alive until the interpreter is gone.
nb::capsule make_reader(nb::tuple types, nb::callable owner_of, nb::callable is_negated) {
  return nb::capsule(new Reader(std::move(types), std::move(owner_of), std::move(is_negated)),
                     Reader::kName,
                     [](void* reader) noexcept { delete static_cast<Reader*>(reader); });
}

/// How allreduces reduce, as Python gives it.
struct How {
  int op;
  double prescale;
  double postscale;
  int process_set;

  hvd_request request(const char* name, TensorList& from, TensorList& to) const {
    hvd_request request{};
    request.kind = HVD_ALLREDUCE;
    request.name = name;
    request.process_set = process_set;
    request.count = static_cast<int32_t>(from.count());
    request.inputs = from.data();
    request.outputs = to.addresses();
    request.op = static_cast<hvd_reduce_op>(op);
    request.prescale = prescale;
    request.postscale = postscale;
    return request;
  }
};

/// The tensors of both, each of which is a tensor or a list of them.
nb::list all_of(nb::handle inputs, nb::handle outputs) {
  nb::list all;
  for (nb::handle tensors : {inputs, outputs}) {
    if (PyList_CheckExact(tensors.ptr()))
      all.extend(tensors);
    else
      all.append(tensors);
  }
  return all;
}

// Eight arguments and no more: nanobind has a shorter way for so many.
hvd_handle reduce(const nb::capsule& readers, nb::str name, nb::handle inputs, nb::handle outputs,
                  int op, double prescale, double postscale, int process_set) {
  released().drop_all();
  const auto& reader = Reader::in(readers);
  const How how{op, prescale, postscale, process_set};
  TensorList from(reader, inputs);
  if (!from.is_readable() || !from.has_one_type_for_every_op()) return 0;
  if (outputs.is(inputs))
    return queue(how.request(name.c_str(), from, from), Loan::make(reader.owners_of(inputs), name));
  TensorList to(reader, outputs);
  if (!to.is_readable() || to.count() != from.count()) return 0;
  return queue(how.request(name.c_str(), from, to),
               Loan::make(reader.owners_of(all_of(inputs, outputs)), name));
}

/// Several allreduces in place, as one submission.
class InPlace {
 public:
  /// Nothing is to be done with it unless is_readable().
  InPlace(const Reader& reader, const nb::list& names, const nb::list& tensors, const How& how) {
    const size_t count = nb::len(tensors);
    if (nb::len(names) != count) throw nb::value_error("as many names as tensors are needed");
    lists_.reserve(count);
    for (nb::handle item : tensors) {
      lists_.emplace_back(reader, item);
      if (!lists_.back().is_readable() || !lists_.back().has_one_type_for_every_op()) return;
    }
    requests_.reserve(count);
    for (size_t i = 0; i < count; ++i)
      requests_.push_back(how.request(nb::cast<const char*>(names[i]), lists_[i], lists_[i]));
    for (size_t i = 0; i < count; ++i)
      keep(requests_[i], Loan::make(reader.owners_of(tensors[i]), names[i]));
    is_readable_ = true;
  }

  bool is_readable() const { return is_readable_; }

  std::vector<hvd_handle> submit() {
    std::vector<hvd_handle> handles(requests_.size());
    const auto count = static_cast<int32_t>(requests_.size());
    const hvd_status status = hvd_submit_all(requests_.data(), count, handles.data());
    if (status != HVD_OK) {
      for (hvd_request& request : requests_) Py_DECREF(static_cast<PyObject*>(request.owner));
    }
    check(status);
    return handles;
  }

 private:
  std::vector<TensorList> lists_;
  std::vector<hvd_request> requests_;
  bool is_readable_ = false;
};

std::optional<std::vector<hvd_handle>> reduce_all(const nb::capsule& readers, const nb::list& names,
                                                  const nb::list& tensors, int op, double prescale,
                                                  double postscale, int process_set) {
  released().drop_all();
  const auto& reader = Reader::in(readers);
  InPlace all(reader, names, tensors, {op, prescale, postscale, process_set});
  if (!all.is_readable()) return std::nullopt;
  return all.submit();
}

/// Where the memory of each tensor begins; of `items` each is a tensor or a list of them.
nb::bytes addresses(const nb::capsule& readers, const nb::list& items) {
  const auto& reader = Reader::in(readers);
  std::vector<uintptr_t> found;
  for (nb::handle item : items) {
    if (!PyList_CheckExact(item.ptr())) {
      found.push_back(reader.address_of(item));
      continue;
    }
    for (nb::handle tensor : nb::borrow<nb::list>(item)) found.push_back(reader.address_of(tensor));
  }
  return nb::bytes(reinterpret_cast<const char*>(found.data()), found.size() * sizeof(uintptr_t));
}

void make_notes(GradientNotes* made, const nb::capsule& readers, nb::callable begin,
                nb::callable enough, nb::callable too_often, int64_t enough_bytes) {
  new (made) GradientNotes(readers, {std::move(begin), std::move(enough), std::move(too_often)},
                           enough_bytes);
}

/// What autograd calls with a parameter whose gradient has grown. Keeps the notes alive.
nb::object make_hook(nb::object self, int64_t bytes, int passes) {
  auto& notes = nb::cast<GradientNotes&>(self);
  const size_t index = notes.add(bytes, passes);
  return nb::cpp_function([self = std::move(self), &notes, index](nb::handle parameter) {
    notes.on_gradient(index, parameter);
  });
}

hvd_handle submit(int kind, nb::str name, nb::sequence inputs, nb::object outputs,
                  nb::object owners, int op, double prescale, double postscale, int root,
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
  return queue(request, Loan::make(std::move(owners), name));
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

void finish_all(const std::vector<hvd_handle>& handles) {
  const auto count = static_cast<int32_t>(handles.size());
  const hvd_status status = without_gil([&] { return hvd_finish_all(handles.data(), count); });
  released().drop_all();
  check(status);
}

void free_all(const std::vector<hvd_handle>& handles) {
  for (const hvd_handle handle : handles) hvd_free(handle);
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

/// A function of Python that brings what rank 0 says to all ranks, and what it raised. Called by
/// the thread that has called init().
struct Introduction {
  nb::object function;
  nb::object raised = nb::none();
  Unlocked* unlocked = nullptr;  ///< while init() runs

  static bool call(void* context, const char* name, const char* word, char* room, size_t capacity) {
    auto& self = *static_cast<Introduction*>(context);
    self.unlocked->take_back();
    const bool brought = self.bring(name, word, room, capacity);
    self.unlocked->give_away();
    return brought;
  }

  bool bring(const char* name, const char* word, char* room, size_t capacity) {
    try {
      const nb::object mine = word != nullptr ? nb::object(nb::str(word)) : nb::none();
      const nb::str called(name);
      PyObject* const text = stopping_at_the_end([&] {
        return PyObject_CallFunctionObjArgs(function.ptr(), called.ptr(), mine.ptr(), nullptr);
      });
      if (text == nullptr) throw nb::python_error();
      const auto said = nb::cast<std::string>(nb::steal(text));
      if (said.size() >= capacity) return false;
      std::copy_n(said.c_str(), said.size() + 1, room);
      return true;
    } catch (const nb::python_error& error) {
      raised = nb::borrow(error.value());
      return false;
    }
  }
};

void init(const std::vector<std::vector<int32_t>>& process_sets, bool dynamic,
          const std::vector<int32_t>& members, int32_t rank, int32_t size, nb::object introduce) {
  std::vector<hvd_rank_list> lists;
  for (const auto& ranks : process_sets) lists.push_back(list_of(ranks));
  const hvd_init_options options{lists.data(), static_cast<int32_t>(lists.size()), dynamic};
  Introduction introduction{std::move(introduce)};
  hvd_job job{};
  job.members = list_of(members);
  job.rank = rank;
  job.size = size;
  if (!introduction.function.is_none()) {
    job.introduce = &Introduction::call;
    job.context = &introduction;
  }
  Unlocked unlocked;
  introduction.unlocked = &unlocked;
  const hvd_status status = hvd_init_job(&options, &job);
  unlocked.take_back();
  if (!introduction.raised.is_none()) {
    PyErr_SetObject(introduction.raised.type().ptr(), introduction.raised.ptr());
    throw nb::python_error();
  }
  check_start(status);
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

nb::bytes derive_key(const std::string& purpose) {
  std::array<uint8_t, HVD_KEY_BYTES> key{};
  check(hvd_derive_key(purpose.c_str(), key.data()));
  return nb::bytes(key.data(), key.size());
}

}  // namespace

NB_MODULE(_core, m) {
  // A model that outlives the interpreter takes its hooks along, and that is nobody's mistake.
  nb::set_leak_warnings(false);
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
  m.def("init", &init, "process_sets"_a = nb::list(), "dynamic"_a = false, "members"_a = nb::list(),
        "rank"_a = 0, "size"_a = 0, "introduce"_a.none() = nb::none());
  m.def("shutdown", [] {
    check(without_gil(hvd_shutdown));
    released().drop_all();
  });
  m.def("shutdown_at_exit", [] {
    hvd::python::Exit::begin();
    check(without_gil(hvd_shutdown_at_exit));
    released().drop_all();
  });
  m.def("is_initialized", &hvd_is_initialized);
  m.def("uses_mpi", &hvd_uses_mpi);
  m.def("derive_key", &derive_key, "purpose"_a);
  m.def("world", &world);
  m.def("add_process_set", &add_process_set, "ranks"_a);
  m.def(
      "remove_process_set",
      [](int32_t id) { check(without_gil([=] { return hvd_remove_process_set(id); })); }, "id"_a);
  m.def("process_set", &process_set, "id"_a);
  m.def("process_set_ranks", &process_set_ranks, "id"_a);
  m.def("submit", &submit, "kind"_a, "name"_a, "inputs"_a, "outputs"_a.none(), "owners"_a.none(),
        "op"_a = 1, "prescale"_a = 1.0, "postscale"_a = 1.0, "root"_a = 0, "process_set"_a = 0,
        "splits"_a.none() = nb::none());
  m.def("reader", &make_reader, "types"_a, "owner_of"_a, "is_negated"_a);
  m.def(
      "borrower_of",
      [](nb::handle owner) {
        released().drop_all();
        return Loan::borrower_of(owner);
      },
      "owner"_a);
  m.def("reduce", &reduce, "reader"_a, "name"_a, "inputs"_a, "outputs"_a, "op"_a, "prescale"_a,
        "postscale"_a, "process_set"_a);
  m.def("reduce_all", &reduce_all, "reader"_a, "names"_a, "tensors"_a, "op"_a, "prescale"_a,
        "postscale"_a, "process_set"_a);
  m.def("addresses", &addresses, "reader"_a, "items"_a);
  nb::class_<GradientNotes>(m, "GradientNotes")
      .def("__init__", &make_notes, "reader"_a, "begin"_a, "enough"_a, "too_often"_a,
           "enough_bytes"_a)
      .def("hook", &make_hook, "bytes"_a, "passes"_a)
      .def("restart", &GradientNotes::restart, "passes"_a)
      .def("begin_pass", &GradientNotes::begin_pass)
      .def("take", &GradientNotes::take)
      .def("has_noted", &GradientNotes::has_noted)
      .def("stop", &GradientNotes::stop);
  m.def("poll", &hvd_poll, "handle"_a);
  m.def("wait", &wait, "handle"_a);
  m.def("finish", &finish, "handle"_a);
  m.def("finish_all", &finish_all, "handles"_a);
  m.def("free_all", &free_all, "handles"_a);
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
