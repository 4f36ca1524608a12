// NCCL for processes of one machine, over sockets: the calls that engine/ranks/nccl.cuh looks up, with the real names
// and arguments. Like the real ones they are queued on a stream, may be captured, and wait there for the other ranks.
// Where the real library would hang or mix up data it is stricter: both sides of a message must agree on its size. The
// rank of a process that has died is waited for, as over shared memory; options().nccl has the other faults.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "internal.h"

namespace hs::emulator {
namespace {

enum Result { success = 0, cuda_error = 1, system_error = 2, invalid_argument = 4, invalid_usage = 5 };
constexpr int type_f32 = 7, type_bf16 = 9, op_sum = 0;

struct Call {
  enum Kind { send, receive, all_reduce } kind;
  char* data;
  int peer;
  size_t bytes = 0;
};
using Calls = std::vector<Call>;  // of one group

struct Header {  // of a message, whose bytes follow
  uint32_t is_all_reduce, number;
  uint64_t bytes;
  bool operator==(const Header&) const = default;
};

// Another rank, and what is on its way to it and from it.
struct Peer {
  int socket = -1;
  std::string outgoing, incoming;
  std::vector<Header> expected;     // of the group that runs
  std::vector<std::string> bodies;  // of the messages that have arrived of these
};

std::string text_of(const Header& header) {
  return format("message %u of a group, %s%llu bytes", header.number, header.is_all_reduce ? "all-reduce, " : "",
                static_cast<unsigned long long>(header.bytes));
}

}  // namespace
}  // namespace hs::emulator

using namespace hs::emulator;

struct ncclComm {
  ncclComm(int size_, int rank_) : size(size_), rank(rank_), peers(static_cast<size_t>(size_)) {}
  ~ncclComm() {
    for (const Peer& peer : peers) {
      if (peer.socket >= 0) close(peer.socket);
    }
  }
  // "hang@1=5": rank 1, from its fifth group on.
  bool has_fault(const std::string& kind) const {
    char name[16];
    int of_rank = 0;
    long long first = 0;
    return sscanf(options().nccl.c_str(), "%15[a-z]@%d=%lld", name, &of_rank, &first) == 3 && name == kind &&
           of_rank == rank && started >= first;
  }
  void begin(const std::shared_ptr<const Calls>& calls);
  bool advance();  // whether the group that runs is done

  const int size, rank;
  std::vector<Peer> peers;  // by rank
  std::shared_ptr<const Calls> running;
  bool aborted = false;
  int asynchronous_error = success;
  int64_t started = 0;  // groups

 private:
  bool advance(int other);
  void finish();
};

void ncclComm::begin(const std::shared_ptr<const Calls>& calls) {
  running = calls;
  ++started;
  if (has_fault("error")) asynchronous_error = system_error;
  for (int other = 0; other < size; ++other) {
    Peer& peer = peers[static_cast<size_t>(other)];
    peer.expected.clear();
    peer.bodies.clear();
    uint32_t sent = 0;
    for (const Call& call : *calls) {
      const bool reduces = call.kind == Call::all_reduce;
      if (other == rank || (!reduces && other != call.peer)) continue;
      if (call.kind != Call::send) {
        peer.expected.push_back({reduces, static_cast<uint32_t>(peer.expected.size()), call.bytes});
      }
      if (call.kind == Call::receive) continue;
      const Header header = {reduces, sent++, call.bytes};
      const DeviceAccess access{call.data};
      peer.outgoing.append(reinterpret_cast<const char*>(&header), sizeof header).append(call.data, call.bytes);
    }
  }
}

// Whether nothing is left to do with that rank.
bool ncclComm::advance(int other) {
  Peer& peer = peers[static_cast<size_t>(other)];
  const ssize_t sent = send(peer.socket, peer.outgoing.data(), peer.outgoing.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) peer.outgoing.erase(0, static_cast<size_t>(sent));
  char bytes[1 << 16];
  for (ssize_t got; (got = recv(peer.socket, bytes, sizeof bytes, MSG_DONTWAIT)) > 0;) {
    peer.incoming.append(bytes, static_cast<size_t>(got));  // perhaps of a later group, too
  }
  Header found;
  while (peer.bodies.size() < peer.expected.size() && peer.incoming.size() >= sizeof found) {
    const Header& expected = peer.expected[peer.bodies.size()];
    memcpy(&found, peer.incoming.data(), sizeof found);
    if (found != expected) {
      report(
          cudaErrorUnknown,
          format("NCCL: rank %d expects from rank %d %s, and gets %s: the ranks do not make the same calls in the same "
                 "order",
                 rank, other, text_of(expected).c_str(), text_of(found).c_str()));
      asynchronous_error = invalid_usage;
      return false;
    }
    if (peer.incoming.size() < sizeof found + found.bytes) break;
    peer.bodies.push_back(peer.incoming.substr(sizeof found, found.bytes));
    peer.incoming.erase(0, sizeof found + found.bytes);
  }
  return peer.outgoing.empty() && peer.bodies.size() == peer.expected.size();
}

bool ncclComm::advance() {
  if (asynchronous_error != success || has_fault("hang")) return false;
  bool all = true;
  for (int other = 0; other < size; ++other) all = (other == rank || advance(other)) && all;
  if (all) finish();
  return all;
}

void ncclComm::finish() {
  std::vector<size_t> next(peers.size());
  const auto take = [&](size_t other) { return peers[other].bodies[next[other]++].data(); };
  for (const Call& call : *running) {
    const DeviceAccess access{call.data};
    if (call.kind == Call::receive) memcpy(call.data, take(static_cast<size_t>(call.peer)), call.bytes);
    if (call.kind != Call::all_reduce) continue;
    // The last rank's values first: an order of additions that no tree of neighbours has, but the same on all ranks.
    const std::string own(call.data, call.bytes);
    auto* const sums = reinterpret_cast<float*>(call.data);
    for (size_t other = peers.size(); other-- > 0;) {
      const char* const from = static_cast<int>(other) == rank ? own.data() : take(other);
      for (size_t i = 0; i < call.bytes / sizeof(float); ++i) {
        float value;
        memcpy(&value, from + i * sizeof value, sizeof value);
        sums[i] = other + 1 == peers.size() ? value : sums[i] + value;
      }
    }
  }
  running.reset();
}

namespace {

// The calls of this thread that are not queued yet. All are of one communicator and stream: the engine has no others.
struct Group {
  int depth = 0;  // of ncclGroupStart
  std::shared_ptr<ncclComm> comm;
  cudaStream_t stream = nullptr;
  Calls calls;
};
thread_local Group group;
auto& communicators = *new std::map<ncclComm*, std::shared_ptr<ncclComm>>;

std::shared_ptr<ncclComm> find(ncclComm* comm) {
  const auto found = communicators.find(comm);
  return found == communicators.end() ? nullptr : found->second;
}

int end_group() {
  const std::shared_ptr<ncclComm> comm = std::exchange(group.comm, nullptr);
  if (!comm) return success;
  const auto calls = std::make_shared<const Calls>(std::exchange(group.calls, {}));
  const cudaError_t error = api([&] {
    return enqueue(group.stream, [comm, calls] {
      if (comm->aborted) return;
      if (!comm->running) comm->begin(calls);
      if (comm->running != calls || !comm->advance()) not_finished();
    });
  });
  return error == cudaSuccess ? success : cuda_error;
}

int add(Call call, size_t count, int type, ncclComm* handle, cudaStream_t stream) {
  const std::lock_guard guard(mutex());
  const std::shared_ptr<ncclComm> comm = find(handle);
  if (!comm || call.peer < 0 || call.peer >= comm->size) return invalid_argument;
  if (type != type_f32 && type != type_bf16) return invalid_argument;
  call.bytes = count * (type == type_f32 ? 4 : 2);
  if (count > 0 && where(call.data, call.bytes) != Where::device) return invalid_argument;
  if (call.peer == comm->rank && call.kind != Call::all_reduce) return invalid_usage;
  if (group.comm && (group.comm != comm || group.stream != stream)) return invalid_usage;
  group.comm = comm;
  group.stream = stream;
  group.calls.push_back(call);
  return group.depth > 0 ? success : end_group();
}

// What ranks tell each other when they connect. Threads of one process may share its only device.
struct Greeting {
  int rank = 0;
  pid_t process = getpid();
  char device[64] = {};  // as CUDA_VISIBLE_DEVICES names it
};

int greet(ncclComm& comm, int socket) {
  Greeting own{comm.rank}, other;
  if (const char* device = getenv("CUDA_VISIBLE_DEVICES")) strncpy(own.device, device, sizeof own.device - 1);
  if (send(socket, &own, sizeof own, MSG_NOSIGNAL) != sizeof own) return system_error;
  if (recv(socket, &other, sizeof other, MSG_WAITALL) != sizeof other) return system_error;
  comm.peers[static_cast<size_t>(other.rank)].socket = socket;
  const bool is_shared = own.process != other.process && strcmp(own.device, other.device) == 0;
  return is_shared ? invalid_usage : success;
}

}  // namespace

extern "C" {

struct ncclUniqueId {
  char internal[128];
};

int ncclGetVersion(int* version) {
  *version = 22809;
  return success;
}

int ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  std::random_device random;
  snprintf(id->internal, sizeof id->internal, "%08x%08x", random(), random());
  return success;
}

// Returns when all ranks have called it; waits for them without end.
int ncclCommInitRank(ncclComm** result, int ranks, ncclUniqueId id, int rank) {
  if (!result || rank < 0 || rank >= ranks) return invalid_argument;
  const auto comm = std::make_shared<ncclComm>(ranks, rank);
  const auto open = [] { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); };
  const auto with_address = [&](int of_rank, int socket, auto* call) {
    sockaddr_un address = {AF_UNIX, {}};  // of no file: a name that begins with a zero
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "halfstep-nccl-%.64s-%d", id.internal, of_rank);
    return call(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  };
  const auto wait = [](int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); };
  const int listener = open();
  int status = with_address(rank, listener, bind) && listen(listener, ranks) == 0 ? success : system_error;
  while (comm->has_fault("absent")) wait(10);
  for (int other = 0; other < ranks && status != system_error;
       ++other) {  // connects with the lower, is called by others
    if (other == rank) continue;
    const int socket = other < rank ? open() : accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    while (other < rank && !with_address(other, socket, connect)) wait(1);
    status = std::max(status, greet(*comm, socket));
  }
  close(listener);
  if (status != success) return status;
  const std::lock_guard guard(mutex());
  communicators[comm.get()] = comm;
  *result = comm.get();
  return success;
}

// What waits in a stream gives up, with whatever its arrays hold.
int ncclCommAbort(ncclComm* handle) {
  const std::lock_guard guard(mutex());
  const std::shared_ptr<ncclComm> comm = find(handle);
  if (!comm) return invalid_argument;
  comm->aborted = true;
  communicators.erase(handle);
  return success;
}

int ncclCommGetAsyncError(ncclComm* handle, int* error) {
  const std::lock_guard guard(mutex());
  const std::shared_ptr<ncclComm> comm = find(handle);
  if (!comm) return invalid_argument;
  *error = comm->asynchronous_error;
  return success;
}

const char* ncclGetErrorString(int result) {
  constexpr const char* texts[] = {"no error",       "unhandled cuda error", "unhandled system error",
                                   "internal error", "invalid argument",     "invalid usage"};
  return texts[result > 0 && result <= invalid_usage ? result : result != 0];
}

const char* ncclGetLastError(ncclComm*) { return "the emulator keeps no text"; }

int ncclGroupStart() {
  ++group.depth;
  return success;
}

int ncclGroupEnd() {
  if (group.depth == 0) return invalid_usage;
  return --group.depth > 0 ? success : end_group();
}

int ncclSend(const void* from, size_t count, int type, int peer, ncclComm* comm, cudaStream_t stream) {
  char* const data = static_cast<char*>(const_cast<void*>(from));
  return add({Call::send, data, peer}, count, type, comm, stream);
}

int ncclRecv(void* to, size_t count, int type, int peer, ncclComm* comm, cudaStream_t stream) {
  return add({Call::receive, static_cast<char*>(to), peer}, count, type, comm, stream);
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, ncclComm* comm, cudaStream_t stream) {
  if (from != to || type != type_f32 || op != op_sum) return invalid_argument;  // that is all the engine uses
  return add({Call::all_reduce, static_cast<char*>(to), 0}, count, type, comm, stream);
}

}  // extern "C"
