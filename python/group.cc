#include "python/group.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "python/arguments.h"
#include "python/errors.h"
#include "python/gil.h"
#include "python/tensor_reader.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace hvd::python {
namespace {

int64_t elements(const hvd_tensor& tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor.dimensions; ++i) count *= tensor.shape[i];
  return count;
}

/// Returns the elements of the rows that `rank` of `size` gets. The first dim0 % size ranks get one
/// row more.
int64_t elements_of_part(const hvd_tensor& tensor, int32_t rank, int32_t size) {
  const int64_t rows = tensor.shape[0];
  if (rows == 0) return 0;
  return elements(tensor) / rows * (rows / size + (rank < rows % size ? 1 : 0));
}

/// The core rejects all other operations that need an output, and scalars without rows.
int64_t elements_of_result(hvd_operation_kind kind, const hvd_tensor& input, int32_t rank,
                           int32_t size) {
  if (kind == HVD_ALLGATHER) return elements(input) * size;
  if (kind == HVD_REDUCESCATTER && input.dimensions > 0) return elements_of_part(input, rank, size);
  return elements(input);
}

const char* name_of(const hvd_tensor& tensor) {
  const char* const name = hvd_dtype_name(tensor.dtype);
  return name == nullptr ? "unknown" : name;
}

}  // namespace

Group::Group(const std::vector<int32_t>& ranks, const std::string& name) {
  const hvd_rank_list list{ranks.data(), static_cast<int32_t>(ranks.size())};
  check(without_gil([&] { return hvd_group_create_named(list, name.c_str(), &group_); }));
  rank_ = hvd_group_rank(group_);
  size_ = hvd_group_size(group_);
}

void Group::check_outputs(const hvd_request& request, const hvd_tensor* outputs) const {
  for (int32_t i = 0; i < request.count; ++i) {
    const hvd_tensor& input = request.inputs[i];
    const int64_t needed = elements_of_result(request.operation.kind, input, rank_, size_);
    const int64_t found = elements(outputs[i]);
    if (found == needed && outputs[i].dtype == input.dtype) continue;
    const nb::str form(
        "rank {} of a group: the output has {} elements of type {}, but the result has {} of type "
        "{}");
    const nb::str text = form.format(rank_, found, name_of(outputs[i]), needed, name_of(input));
    throw nb::value_error(text.c_str());
  }
}

bool Group::run(const Operation& operation, nb::handle input, nb::handle output,
                nb::handle reader) {
  Arguments arguments(Reader::of(reader), input, output);
  if (!arguments.can_be_read_for(operation)) return false;
  const hvd_request request = arguments.request(operation, nullptr);
  check_outputs(request, arguments.outputs());
  run(request);
  return true;
}

void Group::barrier() { run(Operation{.kind = HVD_BARRIER}.request(nullptr)); }

void Group::run(const hvd_request& request) {
  if (group_ == nullptr) throw nb::value_error("the group is closed");
  check(without_gil([&] { return hvd_group_run(group_, &request); }));
}

void Group::close() {
  hvd_group* const group = std::exchange(group_, nullptr);
  if (group == nullptr) return;
  without_gil([=] {
    hvd_group_free(group);
    return 0;
  });
}

void define_group(nb::module_& module) {
  nb::class_<Group>(module, "Group")
      .def(nb::init<const std::vector<int32_t>&, const std::string&>(), "ranks"_a, "name"_a = "")
      .def("rank", &Group::rank)
      .def("size", &Group::size)
      .def("run",
           nb::overload_cast<const Operation&, nb::handle, nb::handle, nb::handle>(&Group::run),
           nb::arg(), nb::arg(), nb::arg(), nb::arg().none())
      .def("barrier", &Group::barrier)
      .def("close", &Group::close);
}

}  // namespace hvd::python
