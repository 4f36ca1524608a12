// SIGINT and SIGTERM as something to ask about between steps. The second signal acts as if nobody watched.
#pragma once

#include <string>

namespace hs::bench {

// A signal that the caller had set to be ignored (nohup, a background job) stays ignored.
void watch_signals();

// Throws Error (interrupted or terminated) with "stopped by SIGINT WHERE" if one came.
void check_signals(const std::string& where);

}  // namespace hs::bench
