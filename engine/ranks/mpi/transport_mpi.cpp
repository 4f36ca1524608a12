// The Transport over any MPI 3, as a library of its own that engine/ranks/transport.cpp loads: see
// engine/ranks/transport.h.
#include <mpi.h>

#include <climits>
#include <string>

#include "engine/error.h"
#include "engine/ranks/transport.h"

namespace hs {
namespace {

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int size = 0;
  MPI_Error_string(code, text, &size);
  throw Error(ExitCode::rank, std::string("MPI: ") + what + ": " + std::string(text, static_cast<size_t>(size)));
}

int count_of(size_t count) {
  if (count <= INT_MAX) return static_cast<int>(count);
  throw Error(ExitCode::usage, "MPI: a message of " + std::to_string(count) + " elements, expected at most 2147483647");
}

class MpiTransfer : public Transfer {
 public:
  static constexpr int all_ranks = -2;  // as the peer of a collective transfer
  // expected: the bytes of a message to receive; -1: nothing to compare.
  explicit MpiTransfer(int peer = -1, int expected = -1) : peer_(peer), expected_(expected) {}
  ~MpiTransfer() override {
    if (request == MPI_REQUEST_NULL || peer_ == all_ranks) return;  // MPI neither frees nor cancels a collective one
    if (expected_ >= 0) MPI_Cancel(&request);                       // a receive
    MPI_Request_free(&request);
  }
  MpiTransfer(const MpiTransfer&) = delete;
  MpiTransfer& operator=(const MpiTransfer&) = delete;

  bool done() override {
    if (done_) return true;
    int flag = 0;
    MPI_Status status;
    check_mpi(MPI_Test(&request, &flag, &status), "MPI_Test");
    done_ = flag != 0;
    if (!done_ || expected_ < 0) return done_;
    int bytes = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    if (bytes != expected_) {
      throw Error(ExitCode::rank, "rank " + std::to_string(peer_) + " sent " + std::to_string(bytes) +
                                      " bytes, expected " + std::to_string(expected_) +
                                      "; start all ranks with the same program and flags");
    }
    return true;
  }

  MPI_Request request = MPI_REQUEST_NULL;

 private:
  const int peer_, expected_;
  bool done_ = false;
};

class MpiTransport : public Transport {
 public:
  MpiTransport() {
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_FUNNELED) {
      throw Error(ExitCode::rank, "MPI: supports no threads, expected MPI_THREAD_FUNNELED; use another MPI");
    }
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(world_, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(world_, &size_), "MPI_Comm_size");
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = 0;
    check_mpi(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name");
    host_.assign(name, static_cast<size_t>(length));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host() const override { return host_; }

  TransferPtr send(int to, int tag, std::span<const std::byte> bytes) override {
    auto transfer = std::make_unique<MpiTransfer>();
    check_mpi(MPI_Isend(bytes.data(), count_of(bytes.size()), MPI_BYTE, to, tag, world_, &transfer->request),
              "MPI_Isend");
    return transfer;
  }
  TransferPtr receive(int from, int tag, std::span<std::byte> bytes) override {
    const int count = count_of(bytes.size());
    auto transfer = std::make_unique<MpiTransfer>(from, count);
    check_mpi(MPI_Irecv(bytes.data(), count, MPI_BYTE, from, tag, world_, &transfer->request), "MPI_Irecv");
    return transfer;
  }
  TransferPtr all_reduce(std::span<float> values) override {
    auto transfer = std::make_unique<MpiTransfer>(MpiTransfer::all_ranks);
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values.data(), count_of(values.size()), MPI_FLOAT, MPI_SUM, world_,
                             &transfer->request),
              "MPI_Iallreduce");
    return transfer;
  }
  void close() override { check_mpi(MPI_Finalize(), "MPI_Finalize"); }

 private:
  MPI_Comm world_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::string host_;
};

}  // namespace
}  // namespace hs

// What engine/ranks/transport.cpp looks up. The caller owns the result.
extern "C" hs::Transport* halfstep_open_mpi() { return std::make_unique<hs::MpiTransport>().release(); }
