// Which sanitizer a test is built with: it makes all of it many times slower. Cases that AddressSanitizer leaves out as
// a whole, by `doctest::skip(with_address_sanitizer)`, learn, do with other values what another case does, or ask for
// time and memory: they reach no other code.
#pragma once

namespace hs::test {

#ifdef __SANITIZE_ADDRESS__
constexpr bool with_address_sanitizer = true;
#else
constexpr bool with_address_sanitizer = false;
#endif

#ifdef __SANITIZE_THREAD__
constexpr bool with_sanitizer = true;
#else
constexpr bool with_sanitizer = with_address_sanitizer;
#endif

}  // namespace hs::test
