// Which sanitizer watches a test: it makes all of it many times slower. Cases that AddressSanitizer leaves out as
// a whole, by `doctest::skip(with_address_sanitizer)`, learn, do with other values what another case does, or ask for
// time and memory: they reach no other code.
#pragma once

#include <dlfcn.h>

namespace hs::test {

// Asked at run time: a program that is built without it can run on a library that is built with it (.ci/run).
inline const bool with_address_sanitizer = dlsym(RTLD_DEFAULT, "__asan_init") != nullptr;

#ifdef __SANITIZE_THREAD__
inline const bool with_sanitizer = true;
#else
inline const bool with_sanitizer = with_address_sanitizer;
#endif

}  // namespace hs::test
