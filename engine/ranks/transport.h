// Transport: messages between the processes of one run, which are its ranks 0 .. size-1. Nothing here waits: a transfer
// is started and then polled, so that a caller can give up on a rank that has died or hangs.
//
// The implementation over MPI (engine/ranks/mpi/transport_mpi.cpp) is a library of its own, loaded only in a process
// that an MPI launcher has started: programs do not depend on MPI, and no header but that file sees it. Not thread
// safe: the thread that opened a transport is the one that uses it (MPI calls this "funnelled").
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace hs {

// A transfer in progress. Its buffer must outlive it. Dropping one that is not done is allowed only when the transport
// is not used any more.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Progresses it; true from its completion on. Throws Error (rank): the other rank sent another number of bytes, or
  // MPI failed.
  virtual bool done() = 0;
};
using TransferPtr = std::unique_ptr<Transfer>;  // the owner of a transfer

class Transport {  // the messages of one rank
 public:
  virtual ~Transport() = default;        // does not wait for other ranks; see close()
  virtual int rank() const = 0;          // this process's number, from 0
  virtual int size() const = 0;          // number of ranks
  virtual std::string host() const = 0;  // the name of this rank's machine

  // Messages from one rank to another with one tag (0 to 32767) arrive in the order in which they were sent. Both sides
  // must name the same number of bytes.
  virtual TransferPtr send(int to, int tag, std::span<const std::byte> bytes) = 0;
  virtual TransferPtr receive(int from, int tag, std::span<std::byte> bytes) = 0;  // see send()
  // The library's own all-reduce: the sum over all ranks, in place, on every rank. The order of additions is the
  // library's. Every rank must start them in the same order.
  virtual TransferPtr all_reduce(std::span<float> values) = 0;
  // The regular end, in which ranks wait for each other: without it a launcher reports a crash. Nothing else may be
  // called afterwards.
  virtual void close() = 0;
};

inline constexpr int any_rank = -1;  // as the peer of an all-reduce, which does not say whom it waits for
// Polls until the transfer is done. Throws Error (rank) that names `peer` if that takes longer than `seconds`.
void wait(Transfer& transfer, int peer, double seconds);
[[noreturn]] void fail_waiting(double seconds, int peer);  // throws Error (rank) that names the peer

// The number of processes if a launcher (mpirun, srun) has started this one as one of several ranks, or as the only one
// of mpirun; 0 if it was started directly.
int launched_ranks();

// The ranks of the launcher. Throws Error: usage, if launched_ranks() is 0, or this program was built without MPI;
// rank, if MPI cannot be started or counts other ranks than the launcher does.
std::unique_ptr<Transport> open_mpi();

}  // namespace hs
