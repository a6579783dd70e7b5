// Tables of functions that are looked up in a shared library at run time. A table is a struct of
// function pointers; its symbols are data: one Symbol per field.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/base/operation.h"
#include "core/device/shared_library.h"

namespace hvd::device {

enum class Need : uint8_t {
  needed,    ///< a library without it cannot be used
  optional,  ///< the field is nullptr if the library lacks it
};

/// The exported names of one function. An empty name: that library has no such function.
template <class Table, class Function>
struct Symbol {
  Function* Table::*field;
  std::array<const char*, 2> cuda{};  ///< the newest variant first
  const char* rocm = "";
  Need need = Need::needed;
  int since = 0;  ///< first version of the library with this function; 0: all versions

  /// The names to look up, in this order.
  std::span<const char* const> names(DeviceKind kind) const {
    return kind == DeviceKind::rocm ? std::span<const char* const>(&rocm, 1)
                                    : std::span<const char* const>(cuda);
  }
};
template <class Table, class Function>
Symbol(Function* Table::*, std::array<const char*, 2>, const char*) -> Symbol<Table, Function>;

/// Looks up one function by its names, the first that exists.
inline void* find_any(const SharedLibrary& library, std::span<const char* const> names) {
  for (const char* name : names) {
    if (name != nullptr && *name != '\0') {
      if (void* const found = library.find(name)) return found;
    }
  }
  return nullptr;
}

/// Fills `table` from `library`. Leaves out functions that are newer than `version`: a library of
/// that version cannot have them, and another library may export the same name. Returns the names
/// of the needed functions that are missing.
template <class Table, class... Functions>
std::vector<std::string> fill_table(Table& table,
                                    const std::tuple<Symbol<Table, Functions>...>& symbols,
                                    const SharedLibrary& library, DeviceKind kind, int version) {
  std::vector<std::string> missing;
  const auto fill = [&]<class Function>(const Symbol<Table, Function>& symbol) {
    const auto names = symbol.names(kind);
    const bool named = names.front() != nullptr && *names.front() != '\0';
    if (!named || symbol.since > version) return;
    table.*symbol.field = reinterpret_cast<Function*>(find_any(library, names));
    if (table.*symbol.field == nullptr && symbol.need == Need::needed)
      missing.emplace_back(names.front());
  };
  std::apply([&](const auto&... symbol) { (fill(symbol), ...); }, symbols);
  return missing;
}

}  // namespace hvd::device
