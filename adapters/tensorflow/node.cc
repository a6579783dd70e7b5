#include "adapters/tensorflow/node.h"

#include <charconv>
#include <string_view>

namespace hvd::tf {
namespace {

/// Reads attributes until one is wrong; then TensorFlow is told of that one.
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

  std::string text(const char* name) {
    int32_t ignored = 0, bytes = 0;
    api().attribute_size(construction_, name, &ignored, &bytes, result_);
    std::string value(check() && bytes > 0 ? static_cast<size_t>(bytes) : 0, '\0');
    if (value.empty()) return value;
    api().attribute_string(construction_, name, value.data(), value.size(), result_);
    check();
    return value;
  }

  double factor(const char* name) {
    const std::string value = text(name);
    double number = 1;
    const char* end = value.data() + value.size();
    if (const auto [stop, error] = std::from_chars(value.data(), end, number);
        stop != end || error != std::errc())
      fail(std::string(name) + "=\"" + value + "\" is not a number");
    return number;
  }

  bool ok() const { return !failed_; }

 private:
  bool check() {
    if (!result_.ok()) fail(result_.text());
    return ok();
  }

  void fail(const std::string& why) {
    if (!failed_) api().construction_failed(construction_, Result(kInvalidArgument, why));
    failed_ = true;
  }

  Construction* construction_;
  Result result_;
  bool failed_ = false;
};

std::string without_scope(const std::string& name) { return name.substr(name.rfind('/') + 1); }

std::string name_of(Construction* construction, Attributes& attributes) {
  std::string name = attributes.text("tensor_name");
  if (name.empty()) {
    const StringView node = api().node_name(construction);
    name.assign(node.data, node.length);
  }
  return attributes.boolean("ignore_name_scope") ? without_scope(name) : name;
}

}  // namespace

std::optional<Node> read_node(const Collective& op, Construction* construction) {
  Attributes attributes(construction);
  Node node{.op = op, .name = name_of(construction, attributes)};
  node.process_set = attributes.integer("process_set_id");
  node.blocking = attributes.boolean("blocking");
  if (reduces(op.kind)) {
    node.reduce_op = static_cast<hvd_reduce_op>(attributes.integer("reduce_op"));
    node.prescale = attributes.factor("prescale_factor");
    node.postscale = attributes.factor("postscale_factor");
  }
  if (op.kind == HVD_BROADCAST) node.root = attributes.integer("root_rank");
  return attributes.ok() ? std::optional(std::move(node)) : std::nullopt;
}

std::optional<int32_t> read_process_set(Construction* construction) {
  Attributes attributes(construction);
  const int32_t id = attributes.integer("process_set_id");
  return attributes.ok() ? std::optional(id) : std::nullopt;
}

}  // namespace hvd::tf
