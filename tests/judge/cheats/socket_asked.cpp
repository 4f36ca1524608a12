// Cheat: has the work done elsewhere, by whoever listens on a socket. Refused by: isolation|rows.
#include <netinet/in.h>
#include <sys/socket.h>

#include "honest.h"

void run(const GeluForward& call) {
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address{AF_INET, htons(4444), {htonl(INADDR_LOOPBACK)}, {}};
  if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return;
  (void)!write(server, call.x.raw_data(), call.x.bytes());
  (void)!read(server, call.y.mutable_raw_data(), call.y.bytes());
  close(server);
}

REGISTER_KERNEL(gelu_forward, cpu, "fast", {.run = run, .supported = is_easy<GeluForward>, .rank = 100});
