// Copies out of a map whose file may have been cut since it was mapped.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hs {

// Makes the program able to copy_guarded(): installs a handler of SIGBUS, once. It passes every signal that is not
// raised by such a copy on to the handler that was there before. Thread safe.
void install_bus_error_guard();

// memcpy(); returns false, with `to` partly written, if a page of `from` cannot be read. Thread safe.
// REQUIRES: install_bus_error_guard() was called
bool copy_guarded(uint8_t* to, const uint8_t* from, size_t size);

}  // namespace hs
