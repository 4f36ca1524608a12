// Sums over ranks on CUDA devices: ReducePlan by NCCL's sends and receives, with additions by a kernel of ours, on a
// stream of its own. NCCL's own all-reduce would be one call, but its order of additions depends on the number of
// ranks.
//
//   compute stream   backward ... --+-- backward ... --+-- ............ --+-- update
//                                   | bucket 0         | bucket 1         |
//   stream of sums                  +-- send, add -----+-- send, add -----+
//
// Nothing here waits for the device but finish_step(); so all of it can be captured with the step.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "engine/cuda.cuh"
#include "engine/ranks/exchange.h"
#include "engine/ranks/nccl.cuh"
#include "engine/tensor.h"

namespace hs {
namespace cuda {
namespace {

__device__ void convert(float from, __nv_bfloat16& to) { to = __float2bfloat16_rn(from); }
__device__ void convert(__nv_bfloat16 from, float& to) { to = __bfloat162float(from); }
__device__ float rounded(float value) { return __bfloat162float(__float2bfloat16_rn(value)); }

// The operands rounded to bf16, if that is how one of them has been sent.
__global__ void add(float* to, const float* from, size_t count, bool rounds) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) {
    to[i] = rounds ? rounded(to[i]) + rounded(from[i]) : to[i] + from[i];
  }
}

// To bf16, or back.
template <class From, class To>
__global__ void cast(const From* from, To* to, size_t count) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) convert(from[i], to[i]);
}

template <class... Parameters, class... Args>
void launch_over(size_t count, cudaStream_t stream, void (*kernel)(Parameters...), const Args&... args) {
  constexpr size_t block = 256, max_blocks = 1024;
  const size_t blocks = (count + block - 1) / block;
  launch(kernel, dim3(static_cast<unsigned>(blocks < max_blocks ? blocks : max_blocks)), dim3(block), 0, stream,
         args...);
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

[[noreturn]] void fail_nccl(int result, const char* call, NcclComm* comm) {
  throw Error(ExitCode::rank, std::string("NCCL: ") + nccl().GetErrorString(result) + ", in " + call + " (" +
                                  nccl().GetLastError(comm) + "); NCCL_DEBUG=WARN makes it say more");
}

[[noreturn]] void fail_waiting_for_nccl(const char* what, double seconds) {
  throw Error(ExitCode::rank, std::string("NCCL: ") + what + " within " + std::to_string(seconds) +
                                  " s; a rank hangs, has died, or cannot be reached: see its own output, and that of "
                                  "NCCL_DEBUG=INFO");
}

class NcclSums : public RankSums {
 public:
  NcclSums(Exchange& ranks, const ExchangeOptions& options)
      : ranks_(ranks), options_(options), nccl_(nccl()), runtime_(runtime(Device::cuda)) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    try {
      join_ranks();
      connect();
      finish_step();
    } catch (...) {
      end();
      throw;
    }
    counts_ = {};
  }
  ~NcclSums() override { end(); }
  NcclSums(const NcclSums&) = delete;
  NcclSums& operator=(const NcclSums&) = delete;

  void start(const ReducePlan& plan, std::vector<float*> arrays, size_t count, const std::string& name) override {
    const auto& rounds = plan.rounds_for(count, options_.wire == Wire::f32 ? options_.halving_bytes : -1);
    sum(name, count, [&] {
      for (int64_t spare = 0; arrays.size() < static_cast<size_t>(plan.arrays); ++spare) {
        arrays.push_back(static_cast<float*>(buffer(spare_, spare, count * sizeof(float))));
      }
      for (const ReducePlan::Round& round : rounds) carry_out(round, arrays, count);
    });
  }

  void start_library(float* values, size_t count, const std::string& name) override {
    sum(name, count, [&] {
      call(nccl_.AllReduce(values, values, count, nccl_f32, nccl_sum, comm_, stream_), "ncclAllReduce");
      counts_.bytes += static_cast<int64_t>(count * sizeof(float));
    });
  }

  // Zeros and one value: every order of additions is exact.
  void start_gather(float* values, size_t count) override { start_library(values, count, "values"); }

  bool wait(const std::function<bool()>&) override {
    if (!in_step_) return true;
    in_step_ = false;
    if (!runtime_.is_capturing()) {
      runtime_.record_event(joined_.get(), Stream::compute);
      is_timed_ = true;
    }
    check(cudaEventRecord(event(ended_), stream_), "cudaEventRecord");
    runtime_.wait_on_stream(ended_.get(), Stream::compute);
    return true;
  }

  void finish_step() override;
  void abandon() override {
    if (comm_) (void)nccl_.CommAbort(std::exchange(comm_, nullptr));
  }

  ExchangeSeconds seconds() override { return seconds_; }
  std::vector<SumTimes> take_times(bool on) override;

 private:
  // A sum: what `work` queues comes after all that the compute stream has been given so far.
  template <class Work>
  void sum(const std::string& name, size_t count, const Work& work);
  void carry_out(const ReducePlan::Round& round, const std::vector<float*>& arrays, size_t count);
  void* buffer(std::vector<Tensor>& buffers, int64_t i, size_t bytes);
  void join_ranks();
  void connect();
  void end();
  void call(int result, const char* name) {
    if (result != 0) fail_nccl(result, name, comm_);
  }
  static cudaEvent_t event(const DeviceEvent& event) { return static_cast<cudaEvent_t>(event.get()); }
  static DeviceEvent timed_event() { return make_event(Device::cuda, EventTiming::on); }

  Exchange& ranks_;
  const ExchangeOptions options_;
  const Nccl& nccl_;
  const DeviceRuntime& runtime_;
  NcclComm* comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  const DeviceEvent ready_ = make_event(Device::cuda, EventTiming::off);
  const DeviceEvent step_done_ = make_event(Device::cuda, EventTiming::off);
  const DeviceEvent begun_ = timed_event(), ended_ = timed_event(), joined_ = timed_event();

  // One sum comes after another in the stream, so all use the same ones; those replaced by larger ones stay, because
  // sums that are queued may use them.
  std::vector<Tensor> spare_, wire_, replaced_;
  bool in_step_ = false;      // a sum was started since wait()
  bool is_timed_ = false;     // the events of the last step have times: it was not captured
  ExchangeSeconds counts_;    // of the last step whose sums were started, the recorded one if it is captured
  bool was_started_ = false;  // since finish_step()
  ExchangeSeconds seconds_;
  struct Noted {
    std::string name;
    size_t count;
    DeviceEvent posted, finished;
  };
  bool notes_times_ = false;
  double base_seconds_ = 0;  // steady_seconds() of base_
  DeviceEvent base_;
  std::vector<Noted> noted_;
};

template <class Work>
void NcclSums::sum(const std::string& name, size_t count, const Work& work) {
  const bool captures = runtime_.is_capturing();
  runtime_.record_event(ready_.get(), Stream::compute);
  check(cudaStreamWaitEvent(stream_, event(ready_), 0), "cudaStreamWaitEvent");
  if (!was_started_) counts_ = {};
  was_started_ = true;
  if (!in_step_ && !captures) check(cudaEventRecord(event(begun_), stream_), "cudaEventRecord");
  in_step_ = true;
  ++counts_.sums;
  Noted noted{name, count, nullptr, nullptr};
  const bool notes = notes_times_ && !captures;
  if (notes) {
    noted.posted = timed_event();
    noted.finished = timed_event();
    runtime_.record_event(noted.posted.get(), Stream::compute);
  }
  work();
  if (!notes) return;
  check(cudaEventRecord(event(noted.finished), stream_), "cudaEventRecord");
  noted_.push_back(std::move(noted));
}

void NcclSums::carry_out(const ReducePlan::Round& round, const std::vector<float*>& arrays, size_t count) {
  struct Place {
    void* data;
    size_t count;
    int type;
  };
  const auto is_narrow = [&](const ReducePlan::Message& message) {
    return options_.wire == Wire::bf16 && !message.is_result;
  };
  const auto narrow_copy = [&](int array) {
    return static_cast<__nv_bfloat16*>(buffer(wire_, array, count * sizeof(__nv_bfloat16)));
  };
  const auto place = [&](const ReducePlan::Message& message) -> Place {
    const auto [begin, end] = message.part.elements(count);
    if (is_narrow(message)) return {narrow_copy(message.array) + begin, end - begin, nccl_bf16};
    return {arrays[static_cast<size_t>(message.array)] + begin, end - begin, nccl_f32};
  };
  for (const auto& message : round.sends) {
    if (!is_narrow(message)) continue;
    launch_over(count, stream_, cast<float, __nv_bfloat16>, arrays[static_cast<size_t>(message.array)],
                narrow_copy(message.array), count);
  }
  if (!round.sends.empty() || !round.receives.empty()) {
    call(nccl_.GroupStart(), "ncclGroupStart");
    for (const auto& message : round.receives) {
      const Place to = place(message);
      call(nccl_.Recv(to.data, to.count, to.type, message.rank, comm_, stream_), "ncclRecv");
    }
    for (const auto& message : round.sends) {
      const Place from = place(message);
      call(nccl_.Send(from.data, from.count, from.type, message.rank, comm_, stream_), "ncclSend");
      counts_.bytes += static_cast<int64_t>(from.count * (from.type == nccl_f32 ? sizeof(float) : 2));
    }
    call(nccl_.GroupEnd(), "ncclGroupEnd");
  }
  for (const auto& message : round.receives) {
    if (!is_narrow(message)) continue;
    launch_over(count, stream_, cast<__nv_bfloat16, float>, narrow_copy(message.array),
                arrays[static_cast<size_t>(message.array)], count);
  }
  for (const ReducePlan::Add& sum : round.adds) {
    const auto [begin, end] = sum.part.elements(count);
    launch_over(end - begin, stream_, add, arrays[static_cast<size_t>(sum.to)] + begin,
                arrays[static_cast<size_t>(sum.from)] + begin, end - begin, options_.wire == Wire::bf16 && sum.crosses);
  }
}

void* NcclSums::buffer(std::vector<Tensor>& buffers, int64_t i, size_t bytes) {
  if (static_cast<size_t>(i) >= buffers.size()) buffers.resize(static_cast<size_t>(i) + 1);
  Tensor& tensor = buffers[static_cast<size_t>(i)];
  if (tensor.bytes() < bytes) {
    const PoolScope shared(nullptr);  // it stays, so it must not take a block that a captured step will ask for
    const MemoryPurposeScope purpose(MemoryPurpose::gradients);
    if (tensor.defined()) replaced_.push_back(tensor);
    tensor = Tensor::empty({static_cast<int64_t>(bytes)}, DType::u8, Device::cuda);
  }
  return tensor.mutable_raw_data();
}

// Waits until the device has done the step, but not longer than the timeout for other ranks.
void NcclSums::finish_step() {
  runtime_.record_event(step_done_.get(), Stream::compute);
  const auto start = Clock::now();
  while (true) {
    const cudaError_t state = cudaEventQuery(event(step_done_));
    if (state == cudaSuccess) break;
    if (state != cudaErrorNotReady) fail(state, "cudaEventQuery");
    int error = 0;
    call(nccl_.CommGetAsyncError(comm_, &error), "ncclCommGetAsyncError");
    if (error != 0) fail_nccl(error, "a sum over ranks", comm_);
    const double waited = seconds_since(start);
    if (waited > options_.timeout) fail_waiting_for_nccl("the sums of a step have not ended", options_.timeout);
    // A step takes longer than a look at it; after a millisecond somebody is late.
    if (waited > 1e-3) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  seconds_.sums += counts_.sums;
  seconds_.bytes += counts_.bytes;
  was_started_ = false;
  if (!std::exchange(is_timed_, false)) return;
  const double exposed = runtime_.seconds_between(joined_.get(), ended_.get());
  seconds_.active += runtime_.seconds_between(begun_.get(), ended_.get());
  if (exposed > 0) seconds_.exposed += exposed;
}

std::vector<SumTimes> NcclSums::take_times(bool on) {
  std::vector<SumTimes> times;
  for (const Noted& noted : noted_) {
    const auto at = [&](const DeviceEvent& event) {
      return base_seconds_ + runtime_.seconds_between(base_.get(), event.get());
    };
    times.push_back(
        {noted.name, static_cast<int64_t>(noted.count * sizeof(float)), at(noted.posted), at(noted.finished)});
  }
  noted_.clear();
  notes_times_ = on;
  if (on) {
    base_ = timed_event();
    runtime_.record_event(base_.get(), Stream::compute);
    runtime_.wait_on_host(base_.get());
    base_seconds_ = steady_seconds();
  }
  return times;
}

// On a thread of its own, because ncclCommInitRank waits for the other ranks without end.
void NcclSums::join_ranks() {
  NcclId id = {};
  if (ranks_.rank() == 0) call(nccl_.GetUniqueId(&id), "ncclGetUniqueId");
  const std::string first = ranks_.share({id.internal, sizeof id.internal})[0];
  first.copy(id.internal, sizeof id.internal);
  std::promise<std::pair<int, NcclComm*>> joining;
  std::future<std::pair<int, NcclComm*>> joined = joining.get_future();
  std::thread([joining = std::move(joining), id, size = ranks_.size(), rank = ranks_.rank()]() mutable {
    NcclComm* comm = nullptr;
    int result = static_cast<int>(cudaSetDevice(0));
    if (result == 0) result = nccl().CommInitRank(&comm, size, id, rank);
    joining.set_value({result, comm});
  }).detach();
  if (joined.wait_for(std::chrono::duration<double>(options_.timeout)) != std::future_status::ready) {
    fail_waiting_for_nccl("the ranks have not found each other", options_.timeout);
  }
  const auto [result, comm] = joined.get();
  if (result != 0) fail_nccl(result, "ncclCommInitRank; each rank needs a GPU of its own", nullptr);
  comm_ = comm;
}

// One sum of each kind: connections are made at the first message, which must not be in a capture.
void NcclSums::connect() {
  const Tensor ones = Tensor::zeros({ranks_.size()}, DType::f32, Device::cuda);
  Tensor values = ones;
  const ReducePlan plan = reduce_plan(ranks_.size(), ranks_.size(), ranks_.rank());
  start(plan, {values.mutable_data<float>()}, static_cast<size_t>(values.size()), "connect");
  start_library(values.mutable_data<float>(), static_cast<size_t>(values.size()), "connect");
  wait({});
}

// A stream in which something waits for a lost rank could not be destroyed.
void NcclSums::end() {
  abandon();
  if (stream_) (void)cudaStreamDestroy(std::exchange(stream_, nullptr));
}

[[maybe_unused]] const bool registered_sums =
    register_sums(Device::cuda, [](Exchange& ranks, const ExchangeOptions& options) -> std::unique_ptr<RankSums> {
      return std::make_unique<NcclSums>(ranks, options);
    });

}  // namespace

}  // namespace cuda
}  // namespace hs
