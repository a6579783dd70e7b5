#include "launcher/options/config_file.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "core/base/error.h"
#include "launcher/options/hints.h"

namespace hvd::launcher {
namespace {

std::string_view key_of(const KnobRow& row) {
  return row.yaml.starts_with('!') ? row.yaml.substr(1) : row.yaml;
}

const KnobRow* row_of(std::string_view key) {
  for (const KnobRow& row : rows())
    if (!row.yaml.empty() && key_of(row) == key) return &row;
  return nullptr;
}

bool is_section(std::string_view name) {
  return std::ranges::any_of(
      rows(), [&](const KnobRow& row) { return key_of(row).starts_with(std::string(name) + "."); });
}

/// The known sections and their keys.
std::vector<std::string_view> keys() {
  std::vector<std::string_view> result;
  for (const KnobRow& row : rows()) {
    const std::string_view key = key_of(row);
    if (key.find('.') != std::string_view::npos) result.push_back(key.substr(0, key.find('.')));
    if (!key.empty()) result.push_back(key);
  }
  return result;
}

/// yaml-cpp reports malformed text only by an exception. This converts it into an Error.
YAML::Node load(const std::string& text, const std::string& name) {
  std::string problem;
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    problem = error.what();
  }
  fail(Code::invalid_argument, fmt::format("config file {}: {}", name, problem));
}

class Reading {
 public:
  explicit Reading(std::string name) : name_(std::move(name)) {}

  void section(const std::string& section, const YAML::Node& node) {
    if (node.IsNull()) return;
    if (!node.IsMap())
      fail(Code::invalid_argument,
           fmt::format("config file {}: '{}' must hold keys and values", name_, section));
    for (const auto& entry : node) value(section + "." + entry.first.Scalar(), entry.second);
  }

  void value(const std::string& key, const YAML::Node& node) {
    if (key == "logging.hide_timestamp") {
      result_.warnings.push_back(
          fmt::format("config file {}: logging.hide_timestamp is ignored; "
                      "use logging.with_timestamp instead",
                      name_));
      return;
    }
    const KnobRow* row = row_of(key);
    if (row == nullptr)
      fail(Code::invalid_argument,
           fmt::format("config file {}, line {}: unknown key '{}'{}", name_, node.Mark().line + 1,
                       key, did_you_mean(key, keys())));
    if (node.IsNull()) return;
    const std::string shown = fmt::format("config file {}: {}", name_, key);
    if (!node.IsScalar() && !node.IsSequence())
      fail(Code::invalid_argument, fmt::format("{} must be one value", shown));
    Setting setting{row, shown, scalar(node, shown)};
    const std::string value = variable_value(setting);
    if (row->kind == KnobKind::boolean) setting.text = value;
    if (row->yaml.starts_with('!')) setting.text = value == "1" ? "0" : "1";
    result_.settings.push_back(std::move(setting));
  }

  ConfigFile take() { return std::move(result_); }

 private:
  /// A list, such as a list of cores, becomes comma-separated.
  static std::string scalar(const YAML::Node& node, const std::string& shown) {
    if (node.IsScalar()) return node.Scalar();
    std::string text;
    for (const YAML::Node& item : node) {
      if (!item.IsScalar()) fail(Code::invalid_argument, shown + " must be a list of values");
      text += (text.empty() ? "" : ",") + item.Scalar();
    }
    return text;
  }

  std::string name_;
  ConfigFile result_;
};

}  // namespace

std::string variable_value(const Setting& setting) {
  return checked_flag(*setting.row, setting.shown, setting.text);
}

ConfigFile parse_config(const std::string& text, const std::string& name) {
  const YAML::Node root = load(text, name);
  Reading reading(name);
  if (root.IsNull()) return reading.take();
  if (!root.IsMap())
    fail(Code::invalid_argument,
         fmt::format("config file {}: the top level must be a mapping of sections", name));
  for (const auto& entry : root) {
    if (!entry.first.IsScalar())
      fail(Code::invalid_argument, fmt::format("config file {}: a key must be a scalar", name));
    const std::string& key = entry.first.Scalar();
    if (is_section(key)) {
      reading.section(key, entry.second);
    } else {
      reading.value(key, entry.second);
    }
  }
  return reading.take();
}

}  // namespace hvd::launcher
