// Copies from a mapping whose file may have been truncated since it was mapped.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hs {

// Installs the SIGBUS handler that copy_guarded() needs, once. The handler passes every signal that no such copy raised
// to the previous handler. Thread safe.
void install_bus_error_guard();

// memcpy(); returns false, with `to` partly written, if a page of `from` cannot be read. Thread safe.
// REQUIRES: install_bus_error_guard() was called
bool copy_guarded(uint8_t* to, const uint8_t* from, size_t size);

}  // namespace hs
