// NCCL for processes of one machine, over sockets: the calls that engine/ranks/nccl.cuh looks up, with the real names
// and arguments. Like the real ones they are queued on a stream, may be captured, and wait there for the other ranks.
// Where the real library would hang or mix up data it is stricter: both sides of a message must agree on its size. The
// rank of a process that has died is waited for, as over shared memory; options().nccl has the other faults.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "internal.h"

namespace hs::emulator {
namespace {

enum Result { success = 0, system_error = 2, invalid_argument = 4, invalid_usage = 5 };
constexpr int type_f32 = 7, type_bf16 = 9, op_sum = 0;

struct Operation {
  enum class Kind : uint32_t { send, receive, all_reduce } kind;
  char* data;
  size_t bytes;
  int peer;
};
using Operations = std::vector<Operation>;

struct Header {  // of a message
  uint32_t is_all_reduce = 0, number = 0;
  uint64_t bytes = 0;
  bool operator==(const Header&) const = default;
};

// A message on its way: its header, then its bytes.
struct Message {
  Header header;
  std::vector<char> bytes;
  std::function<void(const char* data)> arrived = {};
  size_t done = 0;
};

Message message_of(const Operation& operation, size_t number, const char* data = nullptr) {
  const Header header = {operation.kind == Operation::Kind::all_reduce, static_cast<uint32_t>(number), operation.bytes};
  Message message{header, std::vector<char>(sizeof header + operation.bytes)};
  memcpy(message.bytes.data(), &header, sizeof header);
  if (data) memcpy(message.bytes.data() + sizeof header, data, operation.bytes);
  return message;
}

}  // namespace
}  // namespace hs::emulator

using namespace hs::emulator;

struct ncclComm {
  int rank = 0, size = 1;
  std::vector<int> sockets;  // by rank
  bool aborted = false;
  int asynchronous_error = success;
  int64_t started = 0;

  // Of the group that runs.
  std::shared_ptr<const Operations> running;
  std::vector<std::deque<Message>> outgoing, incoming;  // by rank
  std::deque<std::vector<std::vector<char>>> terms;     // of each all-reduce, by rank

  ~ncclComm() {
    for (const int socket : sockets) {
      if (socket >= 0) close(socket);
    }
  }
  void begin(const std::shared_ptr<const Operations>& operations);
  bool advance();
  void finish();

 private:
  bool push(int peer);
  bool pull(int peer);
};

namespace {

// "hang@1=5": rank 1, from its fifth group on.
bool has_fault(const char* kind, const ncclComm& comm) {
  const std::string& text = options().nccl;
  const size_t at = text.find('@'), equals = text.find('=');
  if (at == std::string::npos || equals == std::string::npos || text.substr(0, at) != kind) return false;
  return std::stoi(text.substr(at + 1)) == comm.rank && comm.started >= std::stoll(text.substr(equals + 1));
}

}  // namespace

void ncclComm::begin(const std::shared_ptr<const Operations>& operations) {
  running = operations;
  ++started;
  outgoing.assign(static_cast<size_t>(size), {});
  incoming.assign(static_cast<size_t>(size), {});
  terms.clear();
  if (has_fault("error", *this)) asynchronous_error = system_error;
  const auto send = [this](size_t peer, const Operation& operation) {
    DeviceAccess access{operation.data};
    outgoing[peer].push_back(message_of(operation, outgoing[peer].size(), operation.data));
  };
  const auto receive = [this](size_t peer, const Operation& operation, std::function<void(const char*)> arrived) {
    incoming[peer].push_back(message_of(operation, incoming[peer].size()));
    incoming[peer].back().arrived = std::move(arrived);
  };
  for (const Operation& operation : *operations) {
    const auto peer = static_cast<size_t>(operation.peer), bytes = operation.bytes;
    if (operation.kind == Operation::Kind::send) send(peer, operation);
    if (operation.kind == Operation::Kind::receive) {
      receive(peer, operation, [to = operation.data, bytes](const char* data) {
        DeviceAccess access{to};
        memcpy(to, data, bytes);
      });
    }
    if (operation.kind != Operation::Kind::all_reduce) continue;
    auto& values = terms.emplace_back(static_cast<size_t>(size));
    DeviceAccess access{operation.data};
    values[static_cast<size_t>(rank)].assign(operation.data, operation.data + bytes);
    for (size_t other = 0; other < values.size(); ++other) {
      if (other == static_cast<size_t>(rank)) continue;
      send(other, operation);
      receive(other, operation, [&term = values[other], bytes](const char* data) { term.assign(data, data + bytes); });
    }
  }
}

// Each returns whether nothing is left to do with that rank.
bool ncclComm::push(int peer) {
  auto& messages = outgoing[static_cast<size_t>(peer)];
  while (!messages.empty()) {
    Message& message = messages.front();
    const ssize_t sent = send(sockets[static_cast<size_t>(peer)], message.bytes.data() + message.done,
                              message.bytes.size() - message.done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return false;
    message.done += static_cast<size_t>(sent);
    if (message.done == message.bytes.size()) messages.pop_front();
  }
  return true;
}

bool ncclComm::pull(int peer) {
  auto& messages = incoming[static_cast<size_t>(peer)];
  while (!messages.empty()) {
    Message& message = messages.front();
    // The header first: it says whether what follows is what this rank expects.
    const size_t wanted = message.done < sizeof(Header) ? sizeof(Header) : message.bytes.size();
    const ssize_t got = recv(sockets[static_cast<size_t>(peer)], message.bytes.data() + message.done,
                             wanted - message.done, MSG_DONTWAIT);
    if (got <= 0 && message.done < message.bytes.size()) return false;
    message.done += static_cast<size_t>(std::max<ssize_t>(got, 0));
    Header found = message.header;
    if (message.done == sizeof found) memcpy(&found, message.bytes.data(), sizeof found);
    if (found != message.header) {
      const auto text = [](const Header& header) {
        return format("message %u of a group, %s%llu bytes", header.number, header.is_all_reduce ? "all-reduce, " : "",
                      static_cast<unsigned long long>(header.bytes));
      };
      report(
          cudaErrorUnknown,
          format("NCCL: rank %d expects from rank %d %s, and gets %s: the ranks do not make the same calls in the same "
                 "order",
                 rank, peer, text(message.header).c_str(), text(found).c_str()));
      asynchronous_error = invalid_usage;
      return false;
    }
    if (message.done < message.bytes.size()) continue;
    message.arrived(message.bytes.data() + sizeof found);
    messages.pop_front();
  }
  return true;
}

bool ncclComm::advance() {
  if (asynchronous_error != success || has_fault("hang", *this)) return false;
  bool all = true;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    all = push(peer) && all;
    all = pull(peer) && all;
  }
  if (all) finish();
  return all;
}

// The last rank's values first: an order of additions that no tree of neighbours has, but the same on all ranks.
void ncclComm::finish() {
  size_t which = 0;
  for (const Operation& operation : *running) {
    if (operation.kind != Operation::Kind::all_reduce) continue;
    const auto& values = terms[which++];
    DeviceAccess access{operation.data};
    auto* const to = reinterpret_cast<float*>(operation.data);
    for (size_t other = values.size(); other-- > 0;) {
      for (size_t i = 0; i < operation.bytes / sizeof(float); ++i) {
        float value;
        memcpy(&value, values[other].data() + i * sizeof value, sizeof value);
        to[i] = other + 1 == values.size() ? value : to[i] + value;
      }
    }
  }
  running.reset();
}

namespace {

struct Group {
  std::shared_ptr<ncclComm> comm;
  cudaStream_t stream;
  std::shared_ptr<Operations> operations;
};
thread_local int depth = 0;
thread_local std::vector<Group> groups;
auto& communicators = *new std::vector<std::shared_ptr<ncclComm>>;

std::shared_ptr<ncclComm> find(const ncclComm* comm) {
  const auto found =
      std::find_if(communicators.begin(), communicators.end(), [&](const auto& each) { return each.get() == comm; });
  return found == communicators.end() ? nullptr : *found;
}

int end_groups() {
  std::vector<Group> all = std::exchange(groups, {});
  const cudaError_t error = api([&] {
    for (const Group& group : all) {
      const cudaError_t queued =
          enqueue(group.stream, [comm = group.comm, operations = std::shared_ptr<const Operations>(group.operations)] {
            if (comm->aborted) return;
            if (!comm->running) comm->begin(operations);
            if (comm->running != operations || !comm->advance()) not_finished();
          });
      if (queued != cudaSuccess) return queued;
    }
    return cudaSuccess;
  });
  return error == cudaSuccess ? success : 1;  // ncclUnhandledCudaError
}

int add(ncclComm* handle, cudaStream_t stream, Operation operation, size_t count, int type) {
  if (type != type_f32 && type != type_bf16) return invalid_argument;
  operation.bytes = count * (type == type_f32 ? 4 : 2);
  {
    const std::lock_guard guard(mutex());
    const std::shared_ptr<ncclComm> comm = find(handle);
    if (!comm || operation.peer < 0 || operation.peer >= comm->size) return invalid_argument;
    if (operation.peer == comm->rank && operation.kind != Operation::Kind::all_reduce) return invalid_usage;
    if (count > 0 && where(operation.data, operation.bytes) != Where::device) return invalid_argument;
    const auto same = [&](const Group& group) { return group.comm == comm && group.stream == stream; };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) group = groups.insert(groups.end(), {comm, stream, std::make_shared<Operations>()});
    group->operations->push_back(operation);
  }
  return depth > 0 ? success : end_groups();
}

struct Address {
  sockaddr_un name = {};
  socklen_t size = 0;
  // No file: a name that begins with a zero.
  Address(const char* id, int rank) {
    name.sun_family = AF_UNIX;
    const std::string text = std::string("halfstep-nccl-") + id + "-" + std::to_string(rank);
    memcpy(name.sun_path + 1, text.data(), text.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

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
  comm.sockets[static_cast<size_t>(other.rank)] = socket;
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
  auto comm = std::make_shared<ncclComm>();
  comm->rank = rank;
  comm->size = ranks;
  comm->sockets.assign(static_cast<size_t>(ranks), -1);
  const auto open = [] { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); };
  const int listener = open();
  const Address own(id.internal, rank);
  int status = bind(listener, own.get(), own.size) == 0 && listen(listener, ranks) == 0 ? success : system_error;
  while (has_fault("absent", *comm)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  for (int lower = 0; lower < rank && status != system_error; ++lower) {
    const Address address(id.internal, lower);
    const int socket = open();
    while (connect(socket, address.get(), address.size) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    status = std::max(status, greet(*comm, socket));
  }
  for (int higher = rank + 1; higher < ranks && status != system_error; ++higher) {
    status = std::max(status, greet(*comm, accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)));
  }
  close(listener);
  if (status != success) return status;
  const std::lock_guard guard(mutex());
  communicators.push_back(comm);
  *result = comm.get();
  return success;
}

// What waits in a stream gives up, with whatever its arrays hold.
int ncclCommAbort(ncclComm* handle) {
  const std::lock_guard guard(mutex());
  const std::shared_ptr<ncclComm> comm = find(handle);
  if (!comm) return invalid_argument;
  comm->aborted = true;
  std::erase(communicators, comm);
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
  ++depth;
  return success;
}

int ncclGroupEnd() {
  if (depth == 0) return invalid_usage;
  return --depth > 0 ? success : end_groups();
}

int ncclSend(const void* from, size_t count, int type, int peer, ncclComm* comm, cudaStream_t stream) {
  char* const data = static_cast<char*>(const_cast<void*>(from));
  return add(comm, stream, {Operation::Kind::send, data, 0, peer}, count, type);
}

int ncclRecv(void* to, size_t count, int type, int peer, ncclComm* comm, cudaStream_t stream) {
  return add(comm, stream, {Operation::Kind::receive, static_cast<char*>(to), 0, peer}, count, type);
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, ncclComm* comm, cudaStream_t stream) {
  if (from != to || type != type_f32 || op != op_sum) return invalid_argument;  // that is all the engine uses
  return add(comm, stream, {Operation::Kind::all_reduce, static_cast<char*>(to), 0, 0}, count, type);
}

}  // extern "C"
