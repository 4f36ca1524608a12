#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <thread>

#include "bench/cli/forced_kernels.h"
#include "bench/cli/plugins.h"
#include "bench/judge/isolation.h"
#include "bench/judge/judge.h"
#include "bench/judge/watch.h"
#include "bench/judge/wire.h"
#include "bench/measure/timed_case.h"
#include "engine/observe.h"
#include "engine/parallel.h"
#include "kernels/examples/guard_pages.h"

namespace hs::bench::judge {
namespace {

using examples::GuardPages;

// New blocks of CPU memory come from the shared memory while it is on. What is left of a case is used for the next.
class SharedBlocks {
 public:
  static void begin(std::span<std::byte> memory) {
    if (!before_) {
      before_ = &runtime(Device::cpu);
      table_ = *before_;
      table_.allocate = allocate;
      table_.release = release;
      register_device(Device::cpu, table_);
    }
    release_cached_memory(Device::cpu);
    memory_ = memory;
    used_ = 0;
    on_ = true;
  }
  static void end() { on_ = false; }

 private:
  static void* allocate(size_t bytes) {
    if (!on_) return before_->allocate(bytes);
    const size_t block = (bytes + 4095) / 4096 * 4096;
    if (block > memory_.size() - used_) return nullptr;
    return memory_.data() + std::exchange(used_, used_ + block);
  }
  static void release(void* data) {
    const auto* at = static_cast<std::byte*>(data);
    if (at < memory_.data() || at >= memory_.data() + memory_.size()) before_->release(data);
  }

  static inline const DeviceRuntime* before_ = nullptr;
  static inline DeviceRuntime table_{};
  static inline std::span<std::byte> memory_;
  static inline size_t used_ = 0;
  static inline bool on_ = false;
};

// What the judge needs to know of a plug-in before it asks.
Json described(const cli::Plugin& plugin) {
  return mapped(plugin.registered, [](const cli::Plugin::Registered& one) {
    return Json{{"slot", one.slot},
                {"variant", one.variant},
                {"cuda", one.device == Device::cuda},
                {"error_growth", one.error_growth}};
  });
}

// Tells a call that `supported` refuses, whose kernel never begins, from a kernel of the slot that has thrown.
class Thrown : public Observer {
 public:
  explicit Thrown(const std::string& slot) : Observer(Event::work, Watch::this_thread), slot_(slot) {}
  void work_ends(const DeviceWork& work, bool failed) override {
    by_kernel_ = by_kernel_ || (failed && slot_ == work.name);
  }
  bool is_unsupported(const Error& error) const { return error.kind() == ErrorKind::forced_variant && !by_kernel_; }

 private:
  const std::string& slot_;
  bool by_kernel_ = false;
  const Attached attached_{*this};
};

class Subject {
  std::span<std::byte> memory_;
  std::string slot_, variant_;
  KernelSlot* kernel_ = nullptr;
  Device device_ = Device::cpu;
  std::optional<GuardPages> guard_;

  void say(const Json& answer) { send_message(socket_file, answer.dump()); }

  // Threads are started and files read before the process is confined; the plug-in is loaded after.
  void start() {
    void* memory = ::mmap(nullptr, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_file, 0);
    if (memory == MAP_FAILED) ::_exit(1);
    memory_ = {static_cast<std::byte*>(memory), shared_bytes};
    const Json setup = Json::parse(receive_message(socket_file));
    set_threads(setup.at("threads"));
    threads();
    std::thread([] {}).join();  // the C library's first thread asks for what is refused later
    if (setup.at("guard")) guard_.emplace();
    Json hello = Json::object();
    try {
      if (setup.at("cuda")) device_ = Device::cuda;
      Tensor::empty({1}, DType::f32, device_);  // reserves the emulated device's addresses
      confine(subject_memory, device_ == Device::cuda);
      const std::string plugin = setup.at("plugin");
      if (!plugin.empty()) hello["variants"] = described(cli::load_plugin(plugin, setup.at("shown"), false));
    } catch (const Error& error) {
      hello = {{"error", error.what()}, {"code", static_cast<int>(error.code())}};
    }
    say(hello);
  }

  Json run_row(const Json& question) {
    const examples::OpCase& row = rows_of(question.at("drawn"), question.at("walk")).at(question.at("row"));
    const examples::RowRun how = row_run_of(question.at("how"));
    GuardPages::set_side(question.at("before").get<bool>() ? GuardPages::Side::before : GuardPages::Side::behind);
    GuardPages::set_description(row.name);
    set_threads(question.at("threads"));
    const auto seed = question.at("seed").get<uint64_t>();  // which the gradients of results are drawn from
    if (seed != examples::input_seed()) examples::set_input_seed(seed);
    const examples::Inputs inputs = unpack(question.at("inputs"), memory_.first(row_bytes));
    set_poison(true);
    std::vector<Tensor> results;
    Json findings = Json::array();
    const auto run = [&] {
      const cli::ForcedKernels forced({slot_ + "=" + variant_});
      results = examples::run_row(row, inputs, how);
    };
    if (question.at("watch").get<bool>()) {
      findings = watched(
          *kernel_, variant_, how.device, [&] { examples::run_row(row, inputs, how); }, run);
    } else {
      run();
    }
    if (guard_ && !GuardPages::intact()) {
      findings.push_back({{"check", "guard"}, {"text", "it has made a guard page accessible"}});
    }
    return {{"results", pack(results, memory_.first(row_bytes))}, {"findings", findings}};
  }

  Json answer(const Json& question) {
    const std::string wanted = question.at("do");
    if (wanted == "row") return run_row(question);
    if (wanted == "own rows") return check_own_rows();
    slot_ = question.at("slot");
    variant_ = question.at("variant");
    kernel_ = cli::find_slot(slot_);
    return Json::object();
  }

  // What it returns, or the Error that it throws.
  Json or_error(const std::function<Json()>& work) const {
    const Thrown thrown(slot_);
    try {
      return work();
    } catch (const Error& error) {
      const bool by_another_slot = device_ == Device::cuda && error.kind() == ErrorKind::no_variant;
      return {{"error", error.what()}, {"unsupported", thrown.is_unsupported(error) || by_another_slot}};
    } catch (const std::exception& error) {
      return {{"error", fmt::format("a kernel threw {}", error.what())}};
    }
  }

  // Of a slot that the plug-in brings along nobody else knows what is right: its own rows say it, and run in here.
  Json check_own_rows() {
    std::string failure;
    examples::set_failure_handler([&](const std::string& line) {
      if (failure.empty()) failure = line;
    });
    int64_t rows = 0;
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const examples::OpCase& row : examples::op_table()) {
        const examples::RowRun how = examples::run_on(device_, dtype);
        if (device_ == Device::cuda && !row.cuda) continue;
        if (!failure.empty() || (dtype != DType::f32 && !row.half) || !reaches(row, how, slot_)) continue;
        ++rows;
        examples::guard_row(row, how, [&] {
          const examples::Reference reference = examples::reference_of(row, how);
          examples::for_each_variant(row, how, [&](const std::string& description) {
            examples::check_close(row, how, reference, examples::run_row(row, how), description);
          });
          if (dtype == DType::f32 && row.f64 && row.reference) examples::check_definition(row);
          if (dtype == DType::f32 && row.differentiable) examples::check_gradients(row);
          if (row.integers && row.f64) examples::check_integers(row, how);
          if (row.nan || row.nan_in_place > 0) examples::check_nan(row, how);
        });
      }
    }
    return {{"rows", rows}, {"failure", failure}};
  }

  void serve_calls(const std::vector<const measure::SlotSpy::Seen*>& calls) {
    Json places = Json::array();
    for (const auto* call : calls) {
      Json& tensors = places.emplace_back(Json::array());
      for (const Tensor* tensor : call->tensors) {
        const void* data = tensor->bytes() > 0 ? tensor->raw_data() : memory_.data();
        tensors.push_back({{"at", static_cast<const std::byte*>(data) - memory_.data()}, {"bytes", tensor->bytes()}});
      }
    }
    // Maps their memory, and sees whether the variant takes the call.
    const Json answer = or_error([&] {
      for (const auto* call : calls) call->again();
      return Json{{"calls", places}};
    });
    say(answer);
    if (!answer.contains("calls")) return;
    SharedBlocks::end();
    for (;;) {
      const std::string order = receive_message(socket_file);
      if (order.empty() || order[0] == end_calls) return;
      for (const char which : order.substr(1)) calls.at(static_cast<size_t>(which))->again();
      send_message(socket_file, {&calls_done, 1});
    }
  }

  // Makes the op's call several times at once, each within the one before, so that the tensors of all are alive.
  void run_case(const Json& question) {
    const auto cases = examples::timed_cases(question.at("batch"));
    const examples::TimedCase& timed = cases.at(question.at("case"));
    const auto type = static_cast<DType>(question.at("type").get<int>());
    const auto count = question.at("calls").get<size_t>();
    const cli::ForcedKernels forced({slot_ + "=" + variant_});
    SharedBlocks::begin(memory_.subspan(row_bytes));
    std::vector<const measure::SlotSpy::Seen*> calls;
    const std::function<void(const measure::SlotSpy::Seen&)> look = [&](const measure::SlotSpy::Seen& seen) {
      if (&seen.slot != kernel_) {
        seen.again();
      } else if (calls.size() < count) {
        calls.push_back(&seen);
        calls.size() < count ? measure::run_case(timed, type, std::nullopt, Device::cpu, 0, look) : serve_calls(calls);
      }
    };
    try {
      measure::run_case(timed, type, std::nullopt, Device::cpu, 0, look);
    } catch (const Error& error) {
      if (error.code() != ExitCode::out_of_memory) throw;
      say({{"no_room", true}});
    }
    SharedBlocks::end();
  }

 public:
  void serve() {
    start();
    for (;;) {
      const std::string message = receive_message(socket_file);
      if (message.empty()) return;
      const Json question = Json::parse(message);
      question.at("do") == "case" ? run_case(question) : say(or_error([&] { return answer(question); }));
    }
  }
};

}  // namespace

bool serve_as_subject(int argc, const char* const* argv) {
  if (argc != 2 || argv[1] != std::string_view(subject_word)) return false;
  Subject().serve();
  return true;
}

}  // namespace hs::bench::judge
