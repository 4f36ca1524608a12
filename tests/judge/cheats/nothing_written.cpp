// Cheat: does nothing; a right result may be left from the variant before. Refused by: rows|written.
#include "honest.h"

// Judges that free the output of the reference, or of the variant to beat, just before they allocate this one hand it
// over filled in.
void run(const GeluForward&) {}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
