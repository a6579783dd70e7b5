// horovod._core: the C interface for Python. Threads of the runtime acquire the GIL only for
// outputs on a device that Python allocates, see outputs.h. Objects that the engine has released
// are kept in a list until the next call from Python.
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
#include "python/arguments.h"
#include "python/dump.h"
#include "python/elastic.h"
#include "python/errors.h"
#include "python/gil.h"
#include "python/gradient_notes.h"
#include "python/group.h"
#include "python/lent_memory.h"
#include "python/numbers.h"
#include "python/operation.h"
#include "python/outputs.h"
#include "python/released.h"
#include "python/tensor_reader.h"

namespace nb = nanobind;
using hvd::python::allocate_output;
using hvd::python::Arguments;
using hvd::python::check;
using hvd::python::GradientNotes;
using hvd::python::item_of;
using hvd::python::keep;
using hvd::python::Loan;
using hvd::python::make_hook;
using hvd::python::make_notes;
using hvd::python::Operation;
using hvd::python::Reader;
using hvd::python::released;
using hvd::python::stopping_at_the_end;
using hvd::python::Unlocked;
using hvd::python::without_gil;
using nb::literals::operator""_a;

namespace {

// ---- errors
// ----------------------------------------------------------------------------------------

/// Raises ValueError for any error of init.
void check_start(hvd_status status) {
  if (status == HVD_OK) return;
  hvd::python::check_elastic_start(status);
  throw nb::value_error(
      ("Horovod could not be initialised: " + std::string(hvd_last_error())).c_str());
}

// ---- operations
// ------------------------------------------------------------------------------------

/// Submits a request and keeps `owner` alive. Keeps the GIL, because releasing it takes as long as
/// the submission. Only the first submission of device memory blocks, while the driver is loaded.
hvd_handle queue(hvd_request request, nb::handle owner) {
  keep(request, owner);
  hvd_handle handle = 0;
  const hvd_status status = hvd_submit(&request, &handle);
  if (status != HVD_OK) owner.dec_ref();
  check(status);
  return handle;
}

/// Submits all requests or none. Each must keep its owner already, see keep().
std::vector<hvd_handle> queue_all(const std::vector<hvd_request>& requests) {
  std::vector<hvd_handle> handles(requests.size());
  const auto count = static_cast<int32_t>(requests.size());
  const hvd_status status = hvd_submit_all(requests.data(), count, handles.data());
  if (status != HVD_OK) {
    for (const hvd_request& request : requests) Py_DECREF(static_cast<PyObject*>(request.owner));
  }
  check(status);
  return handles;
}

/// Makes a Reader in a capsule, not in a class of nanobind, since it may outlive the interpreter.
nb::capsule make_reader(nb::tuple types, nb::callable owner_of, nb::callable is_negated) {
  return nb::capsule(new Reader(std::move(types), std::move(owner_of), std::move(is_negated)),
                     Reader::kName,
                     [](void* reader) noexcept { delete static_cast<Reader*>(reader); });
}

/// Returns the addresses of all tensors. Each of `items` is a tensor or a list of tensors.
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

/// Returns bytes that change with shape, dtype or device of a tensor; empty if one of them cannot
/// be read.
nb::bytes kinds(const nb::capsule& readers, const nb::list& tensors) {
  const auto& reader = Reader::in(readers);
  const size_t count = nb::len(tensors);
  std::vector<int64_t> found;
  found.reserve(8 * count);  // four values, and the shape
  for (size_t i = 0; i < count; ++i) {
    if (!reader.append_kind(item_of(tensors, i), found)) return nb::bytes("", 0);
  }
  return nb::bytes(reinterpret_cast<const char*>(found.data()), found.size() * sizeof(found[0]));
}

/// Makes the owner of a request, which allocates outputs by a function of Python, unless it is
/// None.
nb::capsule lend(hvd_request& request, const Arguments& arguments, nb::object name,
                 nb::handle allocate) {
  if (!allocate.is_none()) request.allocate = &allocate_output;
  return Loan::make(arguments.owners(), std::move(name), nb::borrow(allocate));
}

nb::object submit_one(const Operation& operation, nb::handle name, nb::handle inputs,
                      nb::handle outputs, const Reader* reader, nb::handle allocate) {
  Arguments arguments(reader, inputs, outputs);
  if (!arguments.can_be_read_for(operation)) return nb::int_(0);
  const nb::str text = nb::borrow<nb::str>(name);
  hvd_request request = arguments.request(operation, text.c_str());
  const nb::capsule owner = lend(request, arguments, text, allocate);
  return nb::int_(queue(request, owner));
}

nb::object submit_several(const Operation& operation, const nb::list& names, const nb::list& inputs,
                          nb::handle outputs, const Reader* reader, nb::handle allocate) {
  const size_t count = nb::len(names);
  if (nb::len(inputs) != count || (!outputs.is_none() && nb::len(outputs) != count))
    throw nb::value_error("the number of names and tensors differs");
  if (!allocate.is_none() && nb::len(allocate) != count)
    throw nb::value_error("the number of names and of functions that allocate differs");
  std::vector<Arguments> all;
  std::vector<hvd_request> requests;
  all.reserve(count);
  requests.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const nb::handle to = outputs.is_none() ? outputs : item_of(outputs, i);
    all.emplace_back(reader, item_of(inputs, i), to);
    if (!all.back().can_be_read_for(operation)) return nb::none();
    requests.push_back(all.back().request(operation, nb::cast<const char*>(names[i])));
  }
  for (size_t i = 0; i < count; ++i) {
    const nb::handle allocates = allocate.is_none() ? allocate : item_of(allocate, i);
    keep(requests[i], lend(requests[i], all[i], names[i], allocates));
  }
  return nb::cast(queue_all(requests));
}

nb::object submit_tensors(const Operation& operation, nb::handle names, nb::handle inputs,
                          nb::handle outputs, nb::handle reader, nb::handle allocate) {
  released().drop_all();
  const Reader* const looks = Reader::of(reader);
  if (PyUnicode_Check(names.ptr()))
    return submit_one(operation, names, inputs, outputs, looks, allocate);
  if (!PyList_CheckExact(names.ptr()) || !PyList_CheckExact(inputs.ptr()) ||
      !(outputs.is_none() || PyList_CheckExact(outputs.ptr())))
    throw nb::type_error("a name is a str; several are a list, as are their tensors");
  return submit_several(operation, nb::borrow<nb::list>(names), nb::borrow<nb::list>(inputs),
                        outputs, looks, allocate);
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

void wait_on_stream(hvd_handle handle, uintptr_t stream) {
  check(hvd_wait_on_stream(handle, reinterpret_cast<void*>(stream)));
}

void finish(hvd_handle handle) {
  const hvd_status status = wait_for(handle);
  hvd_free(handle);
  released().drop_all();
  check(status);
}

void finish_all(const std::vector<hvd_handle>& handles, std::optional<uintptr_t> stream) {
  const auto count = static_cast<int32_t>(handles.size());
  const hvd_status status = without_gil([&] {
    if (!stream) return hvd_finish_all(handles.data(), count);
    return hvd_finish_all_on_stream(handles.data(), count, reinterpret_cast<void*>(*stream));
  });
  released().drop_all();
  check(status);
}

void free_all(const std::vector<hvd_handle>& handles) {
  for (const hvd_handle handle : handles) hvd_free(handle);
}

nb::tuple take_output(hvd_handle handle, int index) {
  hvd_tensor output{};
  check(hvd_take_output(handle, index, &output));
  size_t bytes = hvd_dtype_bytes(output.dtype);
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

/// Returns the number of each element type by its name.
nb::dict dtypes() {
  nb::dict found;
  for (int32_t number = 0; hvd_dtype_name(number) != nullptr; ++number)
    found[hvd_dtype_name(number)] = number;
  return found;
}

/// Returns the value of each counter by its name.
nb::dict counters() {
  int32_t count = 0;
  check(hvd_counters(nullptr, &count));
  std::vector<hvd_counter> counted(static_cast<size_t>(count));
  check(hvd_counters(counted.data(), &count));
  nb::dict made;
  for (const hvd_counter& counter : counted) made[counter.name] = counter.value;
  return made;
}

hvd_rank_list list_of(const std::vector<int32_t>& ranks) {
  return {ranks.data(), static_cast<int32_t>(ranks.size())};
}

/// The Python function that broadcasts the root address (`rendezvous`), and its exception, if any.
/// Called on the thread that has called init().
struct Rendezvous {
  nb::object function;
  nb::object raised = nb::none();
  Unlocked* unlocked = nullptr;  ///< while init() runs

  static bool call(void* context, const char* name, const char* root_address, char* received,
                   size_t capacity) {
    auto& self = *static_cast<Rendezvous*>(context);
    self.unlocked->take_back();
    const bool succeeded = self.broadcast(name, root_address, received, capacity);
    self.unlocked->give_away();
    return succeeded;
  }

  bool broadcast(const char* name, const char* root_address, char* received, size_t capacity) {
    try {
      const nb::object own =
          root_address != nullptr ? nb::object(nb::str(root_address)) : nb::none();
      const nb::str called(name);
      PyObject* const result = stopping_at_the_end([&] {
        return PyObject_CallFunctionObjArgs(function.ptr(), called.ptr(), own.ptr(), nullptr);
      });
      if (result == nullptr) throw nb::python_error();
      const nb::object text = nb::steal(result);
      Py_ssize_t bytes = 0;
      const char* const utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &bytes);
      if (utf8 == nullptr) throw nb::python_error();  // it is no str, or has surrogates
      if (static_cast<size_t>(bytes) >= capacity) return false;
      std::copy_n(utf8, bytes + 1, received);
      return true;
    } catch (const nb::python_error& error) {
      raised = nb::borrow(error.value());
      return false;
    }
  }
};

void init(const std::vector<std::vector<int32_t>>& process_sets, bool dynamic,
          const std::vector<int32_t>& members, int32_t rank, int32_t size, nb::object rendezvous,
          const std::string& nccl_library) {
  std::vector<hvd_rank_list> lists;
  for (const auto& ranks : process_sets) lists.push_back(list_of(ranks));
  const hvd_init_options options{lists.data(), static_cast<int32_t>(lists.size()), dynamic,
                                 nccl_library.empty() ? nullptr : nccl_library.c_str()};
  Rendezvous broadcast{std::move(rendezvous)};
  hvd_job job{};
  job.members = list_of(members);
  job.rank = rank;
  job.size = size;
  if (!broadcast.function.is_none()) {
    job.rendezvous = &Rendezvous::call;
    job.context = &broadcast;
  }
  hvd::python::await_place();
  Unlocked unlocked;
  broadcast.unlocked = &unlocked;
  const hvd_status status = hvd_init_job(&options, &job);
  unlocked.take_back();
  if (!broadcast.raised.is_none()) {
    PyErr_SetObject(broadcast.raised.type().ptr(), broadcast.raised.ptr());
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

/// A key of the right size, or ValueError.
const uint8_t* key_in(const nb::bytes& key) {
  if (key.size() != HVD_KEY_BYTES) throw nb::value_error("a key has 32 bytes");
  return static_cast<const uint8_t*>(key.data());
}

nb::bytes seal(const nb::bytes& key, uint64_t number, const nb::bytes& message) {
  std::string sealed(message.size() + HVD_SEAL_BYTES, '\0');
  const uint8_t* const with = key_in(key);
  check(without_gil(
      [&] { return hvd_seal(with, number, message.data(), message.size(), sealed.data()); }));
  return nb::bytes(sealed.data(), sealed.size());
}

nb::bytes unseal(const nb::bytes& key, uint64_t number, const nb::bytes& sealed) {
  if (sealed.size() < HVD_SEAL_BYTES) throw nb::value_error("the message is cut");
  std::string message(sealed.size() - HVD_SEAL_BYTES, '\0');
  const uint8_t* const with = key_in(key);
  check(without_gil(
      [&] { return hvd_unseal(with, number, sealed.data(), message.size(), message.data()); }));
  return nb::bytes(message.data(), message.size());
}

}  // namespace

NB_MODULE(_core, m) {
  // A model may outlive the interpreter together with its hooks; that is not a leak.
  nb::set_leak_warnings(false);
  m.doc() = "The runtime of Horovod; see _core.pyi.";
  hvd::python::add_numbers(m);
  hvd::python::add_elastic(m);
  hvd::python::add_dump(m);
  m.attr("DTYPES") = dtypes();
  m.attr("SEAL_BYTES") = HVD_SEAL_BYTES;

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
        "rank"_a = 0, "size"_a = 0, "rendezvous"_a.none() = nb::none(), "nccl_library"_a = "");
  m.def("shutdown", [] {
    const hvd_status status = without_gil(hvd_shutdown);
    const std::string why = hvd_last_error();  // before code of the dropped objects runs
    released().drop_all();
    check(status, why);
  });
  m.def("shutdown_at_exit", [] {
    hvd::python::Exit::begin();
    check(without_gil(hvd_shutdown_at_exit));
    released().drop_all();
  });
  m.def("is_initialized", &hvd_is_initialized);
  m.def("uses_mpi", &hvd_uses_mpi);
  m.def("derive_key", &derive_key, "purpose"_a);
  m.def("seal", &seal, "key"_a, "number"_a, "message"_a);
  m.def("unseal", &unseal, "key"_a, "number"_a, "sealed"_a);
  m.def("world", &world);
  m.def("add_process_set", &add_process_set, "ranks"_a);
  m.def(
      "remove_process_set",
      [](int32_t id) { check(without_gil([=] { return hvd_remove_process_set(id); })); }, "id"_a);
  m.def("process_set", &process_set, "id"_a);
  m.def("process_set_ranks", &process_set_ranks, "id"_a);
  nb::class_<Operation>(m, "Operation")
      .def("__init__", &Operation::make, "kind"_a, "op"_a = static_cast<int>(HVD_SUM),
           "prescale"_a = 1.0, "postscale"_a = 1.0, "root"_a = 0, "process_set"_a = 0,
           "splits"_a.none() = nb::none(), "receiver"_a = 0, "timeout"_a = 0.0,
           "sent_as"_a.none() = nb::none())
      .def_ro("kind", &Operation::kind)
      .def_ro("op", &Operation::op)
      .def_ro("prescale", &Operation::prescale)
      .def_ro("postscale", &Operation::postscale)
      .def_ro("root", &Operation::root)
      .def_ro("process_set", &Operation::process_set)
      .def_ro("splits", &Operation::splits)
      .def_ro("receiver", &Operation::receiver)
      .def_ro("timeout", &Operation::timeout);
  m.def("submit_tensors", &submit_tensors, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
        nb::arg().none(), nb::arg().none() = nb::none());
  m.def("reader", &make_reader, "types"_a, "owner_of"_a, "is_negated"_a);
  m.def(
      "borrower_of",
      [](nb::handle owner, nb::handle identity) {
        released().drop_all();
        return Loan::borrower_of(owner, identity);
      },
      "owner"_a, "identity"_a.none() = nb::none());
  m.def("addresses", &addresses, "reader"_a, "items"_a);
  m.def("kinds", &kinds, "reader"_a, "tensors"_a);
  nb::class_<GradientNotes>(m, "GradientNotes")
      .def("__init__", &make_notes, "reader"_a, "begin"_a, "enough"_a, "unexpected"_a,
           "on_stream"_a, "enough_bytes"_a)
      .def("hook", &make_hook, "bytes"_a, "passes"_a)
      .def("expect", &GradientNotes::expect, "flags"_a)
      .def("last", &GradientNotes::last)
      .def("restart", &GradientNotes::restart, "passes"_a)
      .def("begin_pass", &GradientNotes::begin_pass)
      .def("take", &GradientNotes::take)
      .def("forget_streams", &GradientNotes::forget_streams)
      .def("has_noted", &GradientNotes::has_noted)
      .def("stop", &GradientNotes::stop);
  m.def("poll", &hvd_poll, "handle"_a);
  m.def("wait", &wait, "handle"_a);
  m.def("wait_on_stream", &wait_on_stream, "handle"_a, "stream"_a);
  m.def("finish", &finish, "handle"_a);
  m.def("finish_all", &finish_all, "handles"_a, "stream"_a.none() = nb::none());
  m.def("check_running", [] { check(hvd_check_running()); });
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
  hvd::python::define_group(m);
  m.def("counters", &counters);
  m.def("stop_timeline", [] { check(without_gil(hvd_stop_timeline)); });
}
