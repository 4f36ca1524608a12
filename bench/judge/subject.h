// The subject: a process that has loaded a plug-in, confined itself, and does what the judge asks (wire.h). Whatever
// the plug-in does to it, it cannot reach the judge: references, clock and verdict are over there.
#pragma once

namespace hs::bench::judge {

// If the program was started as a subject, serves until the judge has gone. main() calls it before anything else.
bool serve_as_subject(int argc, const char* const* argv);

}  // namespace hs::bench::judge
