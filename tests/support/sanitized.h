// Cases that AddressSanitizer leaves out, for `doctest::skip(with_address_sanitizer)`: they learn, or do with other
// values what another case does, and take ten times as long there without reaching other code.
#pragma once

namespace hs::test {

#ifdef __SANITIZE_ADDRESS__
constexpr bool with_address_sanitizer = true;
#else
constexpr bool with_address_sanitizer = false;
#endif

}  // namespace hs::test
