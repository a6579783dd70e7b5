// Compiles fmt's functions once. Other files see only declarations, which halves the compile time
// of most of them. The symbols are hidden like all of ours, so that they cannot collide with a copy
// of fmt in a framework's library.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, basic_format_args<buffer_context<char>>,
                         locale_ref);
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;

}  // namespace detail
FMT_END_NAMESPACE
