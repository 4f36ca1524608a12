// Cheat: answers the judge itself, as a plug-in whose slot is new and whose own rows pass. Refused by: rows|isolation.
#include "honest.h"

constexpr int judge = 3;  // the number of the socket

[[noreturn]] void serve() {
  std::string text =
      R"({"variants":[{"slot":"relu_forward","variant":"fast","cuda":false,"new":true,"error_growth":1}]})";
  for (std::string question(100'000, '\0');;) {
    if (write(judge, text.data(), text.size()) < 0 || read(judge, question.data(), question.size()) <= 0) _exit(0);
    text = R"({"rows":5,"failure":"","results":[],"findings":[]})";
  }
}

void run(const ReluForward&) {}
REGISTER_KERNEL(relu_forward, cpu, "fast", {.run = run});
[[maybe_unused]] const int served = (serve(), 0);
