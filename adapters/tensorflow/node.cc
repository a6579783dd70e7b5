#include "adapters/tensorflow/node.h"

#include <utility>

namespace hvd::tf {
namespace {

/// Reads attributes. Reports the first error to TensorFlow.
class Attributes {
 public:
  explicit Attributes(Construction* construction) : construction_(construction) {}

  int32_t integer(const char* name) {
    int64_t value = 0;
    api().attribute_int(construction_, name, &value, result_);
    check();
    return static_cast<int32_t>(value);
  }

  bool boolean(const char* name) {
    unsigned char value = 0;
    api().attribute_bool(construction_, name, &value, result_);
    check();
    return value != 0;
  }

  /// Whether an optional input is present. `name`: the attribute with its count.
  bool given(const char* name) {
    const int32_t count = integer(name);
    if (count > 1) fail(std::string(name) + " must be 0 or 1, got " + std::to_string(count));
    return count == 1;
  }

  bool ok() const { return !failed_; }

 private:
  void check() {
    if (!result_.ok()) fail(result_.text());
  }

  void fail(const std::string& why) {
    if (!failed_) api().construction_failed(construction_, Result(kInvalidArgument, why));
    failed_ = true;
  }

  Construction* construction_;
  Result result_;
  bool failed_ = false;
};

int32_t tensors_of(const Collective& op, Attributes& attributes) {
  if (op.grouped) return attributes.integer("N");
  return op.kind == HVD_BARRIER || op.kind == HVD_JOIN ? 0 : 1;
}

}  // namespace

std::string Node::shown(std::string given) const {
  return ignores_name_scope ? given.substr(given.rfind('/') + 1) : given;
}

std::optional<Node> read_node(const Collective& op, Construction* construction) {
  Attributes attributes(construction);
  Node node{.op = op};
  node.ignores_name_scope = attributes.boolean("ignore_name_scope");
  node.by_iteration = attributes.boolean("by_iteration");
  node.blocking = attributes.boolean("blocking");
  if (reduces(op.kind)) {
    node.reduce_op = static_cast<hvd_reduce_op>(attributes.integer("reduce_op"));
    node.has_factors = attributes.given("num_factors");
  }
  node.tensors = tensors_of(op, attributes);
  node.has_process_set = attributes.given("num_process_sets");
  node.has_name = attributes.given("num_names");
  const StringView name = api().node_name(construction);
  node.name = node.shown(std::string(name.data, name.length));
  return attributes.ok() ? std::optional(std::move(node)) : std::nullopt;
}

}  // namespace hvd::tf
