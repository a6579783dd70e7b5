#include "launcher/options/described.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;

template <class Number>
Json number(const std::string& text) {
  Number value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Python names levels in capitals.
std::string spelled(const KnobRow& row, std::string text) {
  const bool level = row.env == "HOROVOD_LOG_LEVEL";
  for (char& c : text) {
    const auto letter = static_cast<unsigned char>(c);
    c = static_cast<char>(level ? std::toupper(letter) : std::tolower(letter));
  }
  return text;
}

Json names(const std::string& text) {
  Json list = Json::array();
  for (const std::string_view name : items(text)) list.push_back(name);
  return list;
}

Json one_value(const Flag& flag, const std::string& text) {
  switch (flag.kind) {
    case FlagKind::toggle:
      return text == "1";
    case FlagKind::integer:
      return number<int64_t>(text);
    case FlagKind::decimal:
      return number<double>(text);
    case FlagKind::choice:
      return spelled(*flag.knob, text);
    case FlagKind::cores:
      return text.find(',') == std::string::npos ? number<int64_t>(text) : Json(text);
    case FlagKind::names:
      return names(text);
    case FlagKind::text:
    case FlagKind::words:
      return text;
  }
  return nullptr;
}

Json own_value(const Given& given) {
  if (given.flag->kind == FlagKind::toggle) return true;
  if (given.values.size() == 1) return one_value(*given.flag, given.text());
  Json list = Json::array();
  for (const std::string& text : given.values) list.push_back(one_value(*given.flag, text));
  return list;
}

std::string dest_of(const Flag& flag) {
  return std::string(flag.dest.starts_with('!') ? flag.dest.substr(1) : flag.dest);
}

/// Skips knobs without a flag: only the config file sets them, and only `launcher` is described.
void tell_setting(Json& values, const Setting& setting) {
  if (setting.row->env == "HOROVOD_CONTROLLER")
    values["use_" + spelled(*setting.row, setting.text)] = true;
  const auto found = std::ranges::find(flags(), setting.row, &Flag::knob);
  if (found == flags().end()) return;
  Json value = one_value(*found, setting.text);
  if (found->dest.starts_with('!')) value = !value.get<bool>();
  values[dest_of(*found)] = std::move(value);
}

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string answer_with(const char* key, const std::string& text) {
  return dumped(Json{{key, text}});
}

std::string described(const CommandLine& line, const Options& options) {
  Json values = {{"command", line.command}};
  for (const Flag& flag : flags()) {
    if (flag.dest.empty()) continue;
    const bool own_switch = flag.kind == FlagKind::toggle && flag.knob == nullptr;
    values.emplace(dest_of(flag), own_switch ? Json(false) : Json(nullptr));
  }
  const bool chosen = options.gloo || options.mpi || options.jsrun;
  for (const Setting& setting : options.settings)
    if (!chosen || setting.row->env != "HOROVOD_CONTROLLER") tell_setting(values, setting);
  for (const Given& given : line.given)
    if (given.flag->knob == nullptr && !given.flag->dest.empty())
      values[dest_of(*given.flag)] = own_value(given);
  return dumped({{"values", std::move(values)}, {"warnings", options.warnings}});
}

}  // namespace hvd::launcher
