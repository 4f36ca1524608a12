// The subject: a process that has loaded a plug-in, confined itself, and does what the judge asks (wire.h). Whatever
// the plug-in does to it, it cannot reach the judge: references, clock and verdict are over there.
#pragma once

namespace hs::bench::judge {

// Whether the program was started as a subject, which main() asks before anything else.
bool is_subject(int argc, const char* const* argv);
// Serves until the judge has gone; returns the exit code of the process.
int run_subject();

}  // namespace hs::bench::judge
