#include "job/options/config_file.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <optional>

#include "core/base/error.h"

namespace hvd::job {
namespace {

const KnobRow* row_of(std::string_view key) {
  for (const KnobRow& row : rows()) {
    const std::string_view name = row.yaml.starts_with('!') ? row.yaml.substr(1) : row.yaml;
    if (!name.empty() && name == key) return &row;
  }
  return nullptr;
}

bool is_section(std::string_view name) {
  for (const KnobRow& row : rows()) {
    const std::string_view key = row.yaml.starts_with('!') ? row.yaml.substr(1) : row.yaml;
    if (key.starts_with(std::string(name) + ".")) return true;
  }
  return false;
}

/// yaml-cpp tells of malformed text by an exception only; this is where it becomes ours.
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
                      "logging.with_timestamp took its place",
                      name_));
      return;
    }
    const KnobRow* row = row_of(key);
    if (row == nullptr)
      fail(Code::invalid_argument, fmt::format("config file {}: unknown key '{}'", name_, key));
    if (node.IsNull()) return;
    const std::string shown = fmt::format("config file {}: {}", name_, key);
    if (!node.IsScalar() && !node.IsSequence())
      fail(Code::invalid_argument, fmt::format("{} must be one value", shown));
    std::string text = checked_flag(*row, shown, scalar(node, shown));
    if (row->yaml.starts_with('!')) text = text == "1" ? "0" : "1";
    result_.knobs[std::string(row->env)] = text;
  }

  ConfigFile take() { return std::move(result_); }

 private:
  /// A list, as of cores, is written with commas.
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

ConfigFile parse_config(const std::string& text, const std::string& name) {
  const YAML::Node root = load(text, name);
  Reading reading(name);
  if (root.IsNull()) return reading.take();
  if (!root.IsMap())
    fail(Code::invalid_argument, fmt::format("config file {}: it must hold sections", name));
  for (const auto& entry : root) {
    if (!entry.first.IsScalar())
      fail(Code::invalid_argument, fmt::format("config file {}: a key must be a word", name));
    const std::string& key = entry.first.Scalar();
    if (is_section(key)) {
      reading.section(key, entry.second);
    } else {
      reading.value(key, entry.second);
    }
  }
  return reading.take();
}

}  // namespace hvd::job
