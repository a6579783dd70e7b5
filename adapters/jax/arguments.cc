#include "adapters/jax/arguments.h"

#include <string_view>

namespace hvd::xla {
namespace {

/// Reads a number, which the package passes as int64 or float64.
template <class T>
T number(const void* value) {
  return *static_cast<const T*>(static_cast<const Scalar*>(value)->value);
}

int32_t integer(const void* value) { return static_cast<int32_t>(number<int64_t>(value)); }

std::string text(const void* value) {
  const auto& span = *static_cast<const Text*>(value);
  return {span.data, span.length};
}

void read(std::string_view name, const void* value, Arguments& arguments) {
  hvd_operation& operation = arguments.operation;
  if (name == "kind") operation.kind = static_cast<hvd_operation_kind>(integer(value));
  if (name == "op") operation.op = static_cast<hvd_reduce_op>(integer(value));
  if (name == "prescale") operation.prescale = number<double>(value);
  if (name == "postscale") operation.postscale = number<double>(value);
  if (name == "root") operation.root = integer(value);
  if (name == "process_set") arguments.process_set = integer(value);
  if (name == "name") arguments.name = text(value);
}

}  // namespace

Arguments read_arguments(const Attributes& attributes) {
  Arguments arguments;
  for (int64_t i = 0; i < attributes.size; ++i) {
    const Text& name = *attributes.names[i];
    read({name.data, name.length}, attributes.values[i], arguments);
  }
  return arguments;
}

}  // namespace hvd::xla
