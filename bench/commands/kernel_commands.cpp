// halfstep-bench gemm, conv and ops: every variant of a kernel, verified and then timed, the ladder from the simple one
// to the fastest. Their record has "peaks" and "kernels", one entry for each slot, size and type: slot, sizes, type,
// flops, bytes, chosen, variants; of a variant its relative_error, and if that is no mistake warm_seconds with its
// range, cold_seconds, rounds, and the rates with their shares of the peaks.
#include <fmt/format.h>

#include "bench/cli/console.h"
#include "bench/cli/inputs.h"
#include "bench/commands/commands.h"
#include "bench/measure/forecast.h"
#include "bench/measure/kernel_timing.h"
#include "bench/measure/report.h"
#include "bench/report/outputs.h"
#include "bench/report/presentation.h"
#include "bench/report/record.h"
#include "engine/autograd.h"
#include "engine/check.h"
#include "engine/parallel.h"
#include "kernels/bias_add/bias_add.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/gemm/gemm.h"
#include "kernels/max_pool2d/max_pool2d.h"
#include "kernels/relu/relu.h"

namespace hs::bench::commands {
namespace {

using Tensors = measure::KernelCase::Tensors;

measure::KernelCase gemm_case(int64_t M, int64_t N, int64_t K, bool transpose_a, bool transpose_b) {
  const GemmOptions options{.transpose_a = transpose_a, .transpose_b = transpose_b};
  return {.what = fmt::format("{}x{}x{} {}{}", M, N, K, transpose_a ? "T" : "N", transpose_b ? "T" : "N"),
          .slot = &gemm,
          .inputs = {transpose_a ? Shape{K, M} : Shape{M, K}, transpose_b ? Shape{N, K} : Shape{K, N}},
          .outputs = {{M, N}},
          .call = [options](Tensors& in, Tensors& out) { matmul_into(in[0], in[1], options, out[0]); },
          .flops = 2.0 * static_cast<double>(M * N * K),
          .is_sum = {transpose_a}};
}

// The products of training mnist_cnn's and mnist_cnn_large's linear layers, and squares.
std::vector<measure::KernelCase> gemm_cases(int64_t batch) {
  std::vector<measure::KernelCase> cases;
  for (const int64_t side : {256, 512, 1024}) cases.push_back(gemm_case(side, side, side, false, false));
  cases.push_back(gemm_case(batch, 128, 9216, false, false));  // forward
  cases.push_back(gemm_case(batch, 9216, 128, false, true));   // gradient of the input
  cases.push_back(gemm_case(9216, 128, batch, true, false));   // gradient of the weight
  return cases;
}

Conv2dSizes conv2d_sizes(int64_t N, int64_t side, int64_t C, int64_t OC) {
  return {.N = N,
          .H = side,
          .W = side,
          .C = C,
          .OC = OC,
          .KH = 3,
          .KW = 3,
          .stride = 1,
          .padding = 0,
          .OH = side - 2,
          .OW = side - 2,
          .tf32 = false};
}

std::string describe(const Conv2dSizes& s, const char* more) {
  return fmt::format("{}x{}x{}x{} 3x3 -> {}{}", s.N, s.H, s.W, s.C, s.OC, more);
}

double flops(const Conv2dSizes& s) { return 2.0 * static_cast<double>(s.N * s.OH * s.OW * s.OC * s.K()); }

measure::KernelCase conv2d_forward_case(const Conv2dSizes& s) {
  return {.what = describe(s, ""),
          .slot = &conv2d_forward,
          .inputs = {{s.N, s.H, s.W, s.C}, {s.K(), s.OC}, {s.OC}},
          .outputs = {{s.N, s.OH, s.OW, s.OC}},
          .call =
              [s](Tensors& in, Tensors& out) {
                conv2d_forward({in[0], in[1], in[2], s, out[0]});
              },
          .flops = flops(s)};
}

// The three gradients; the first layer of a model needs no dx. Pooling and ReLU after a convolution leave most of dy
// zero, and some variants skip zeros: `zeros` is their share.
measure::KernelCase conv2d_backward_case(const Conv2dSizes& s, bool needs_dx, double zeros) {
  measure::KernelCase kernel{.what = describe(s, zeros > 0 ? ", 7/8 zeros" : ", dense"),
                             .slot = &conv2d_backward,
                             .inputs = {{s.N, s.H, s.W, s.C}, {s.K(), s.OC}, {s.N, s.OH, s.OW, s.OC}},
                             .outputs = {{s.K(), s.OC}, {s.OC}},
                             .call =
                                 [s, needs_dx](Tensors& in, Tensors& out) {
                                   conv2d_backward({.x = in[0],
                                                    .weight = in[1],
                                                    .dy = in[2],
                                                    .sizes = s,
                                                    .accumulate = false,
                                                    .dx = needs_dx ? out[2] : no_tensor(),
                                                    .dweight = out[0],
                                                    .dbias = out[1]});
                                 },
                             .flops = flops(s) * (needs_dx ? 2 : 1),
                             .is_sum = {true, true, false},
                             .zeros = zeros};
  if (needs_dx) kernel.outputs.push_back({s.N, s.H, s.W, s.C});
  return kernel;
}

// Layers of the models: mnist_cnn, mnist_cnn_large, deep_cnn.
std::vector<measure::KernelCase> conv_cases(int64_t batch) {
  std::vector<measure::KernelCase> cases;
  for (const Conv2dSizes& s :
       {conv2d_sizes(batch, 28, 1, 32), conv2d_sizes(batch, 13, 32, 64), conv2d_sizes(batch, 26, 32, 64)}) {
    cases.push_back(conv2d_forward_case(s));
    for (const double zeros : {0.0, 0.875}) cases.push_back(conv2d_backward_case(s, s.C > 1, zeros));
  }
  return cases;
}

// What else a step of mnist_cnn does, on its largest tensors. Memory decides here, not arithmetic.
std::vector<measure::KernelCase> op_cases(int64_t batch) {
  const Shape wide{batch, 26, 26, 32}, pooled{batch, 13, 13, 32};
  const std::string at = wide.to_string();
  const auto unary = [&](KernelSlot& slot, auto call) {
    return measure::KernelCase{.what = at, .slot = &slot, .inputs = {wide}, .outputs = {wide}, .call = call};
  };
  std::vector<measure::KernelCase> cases;
  cases.push_back(unary(relu_forward, [](Tensors& in, Tensors& out) { relu_forward({in[0], out[0]}); }));
  cases.push_back({.what = at,
                   .slot = &relu_backward,
                   .inputs = {wide, wide},
                   .outputs = {wide},
                   .call = [](Tensors& in, Tensors& out) {
                     relu_backward({in[0], in[1], out[0]});
                   }});
  cases.push_back({.what = at,
                   .slot = &add_forward,
                   .inputs = {wide, wide},
                   .outputs = {wide},
                   .call = [](Tensors& in, Tensors& out) {
                     add_forward({in[0], in[1], out[0]});
                   }});
  cases.push_back({.what = at,
                   .slot = &bias_add_forward,
                   .inputs = {wide, {32}},
                   .outputs = {wide},
                   .call = [](Tensors& in, Tensors& out) {
                     bias_add_forward({in[0], in[1], out[0]});
                   }});
  cases.push_back({.what = at,
                   .slot = &column_sum,
                   .inputs = {{batch * 26 * 26, 32}},
                   .outputs = {{32}},
                   .call =
                       [](Tensors& in, Tensors& out) {
                         column_sum({in[0], false, out[0]});
                       },
                   .is_sum = {true}});
  cases.push_back({.what = at + ", 2x2",
                   .slot = &max_pool2d_forward,
                   .inputs = {wide},
                   .outputs = {pooled},
                   .call = [pooled](Tensors& in, Tensors& out) {
                     Tensor choice = Tensor::empty(pooled, DType::u8, in[0].device());
                     max_pool2d_forward({in[0], 2, 2, out[0], choice});
                   }});
  return cases;
}

class KernelCommand : public cli::Command {
 public:
  using Cases = std::vector<measure::KernelCase> (*)(int64_t batch);
  KernelCommand(const char* name, const char* summary, Cases cases) : name_(name), summary_(summary), cases_(cases) {}

  std::string name() const override { return name_; }
  std::string summary() const override { return summary_; }
  std::string footnote() const override {
    return fmt::format(
        R"(Every variant of a kernel runs once and is compared with the simple one in f64; one whose result is off by more than
its type allows is reported as wrong and not timed, and the exit code is 70. The others take turns. "warm": the call
before was the same; "cold": 128 MiB were written in between. Times are medians, with the fastest and the slowest round.
* is the variant that training takes. Shares are of what this machine reaches in the run itself: arithmetic, and a copy
of 128 MiB (a warm call can be faster than that, from the caches). Multiply-adds count as two operations, those on zeros
too.

Examples:
  halfstep-bench {0}
  halfstep-bench {0} --type bf16 --batch 256 --json {0}.json --html {0}.html
  halfstep-bench {0} --list
)",
        name_);
  }
  void declare(cli::Flags& flags) override;
  void run(const cli::Flags& flags) override;

 private:
  std::vector<DType> types() const;
  void print_list(Device device) const;
  void print_plan(Device device) const;

  const char* name_;
  const char* summary_;
  Cases cases_;
  int64_t batch_ = 64, rounds_ = 15, threads_ = 0;
  double seconds_ = 2;
  std::string device_ = "auto", type_ = "all";
  bool list_ = false, dry_run_ = false;
  report::Outputs outputs_;
};

void KernelCommand::declare(cli::Flags& flags) {
  flags.batch(batch_, 65536).record();
  flags.choice("--type", type_, {"all", "f32", "f16", "bf16"}, "Type of the tensors");
  flags.integer("--rounds", rounds_, 3, 1000, "Turns of each variant").record();
  flags.real("--seconds", seconds_, 0, 3600, "No new round of a kernel after this time").record();
  flags.threads(threads_);
  flags.device(device_);
  outputs_.declare(flags);
  flags.list(list_);
  flags.dry_run(dry_run_);
}

std::vector<DType> KernelCommand::types() const {
  std::vector<DType> wanted;
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    if (type_ == "all" || type_ == hs::name(type)) wanted.push_back(type);
  }
  return wanted;
}

void KernelCommand::print_list(Device device) const {
  report::Table table = {.heads = {"kernel", "sizes", "variants"}, .lines = {}, .left = 3};
  for (const measure::KernelCase& kernel : cases_(batch_)) {
    std::string variants;
    for (const VariantBase* v = kernel.slot->variants(); v; v = v->next) {
      if (v->device == device) variants += (variants.empty() ? "" : ", ") + std::string(v->name);
    }
    table.lines.push_back({kernel.slot->name(), kernel.what, variants});
  }
  cli::write_stdout(to_text(table));
}

void KernelCommand::print_plan(Device device) const {
  const std::vector<measure::KernelCase> cases = cases_(batch_);
  double largest = 0;
  for (const measure::KernelCase& kernel : cases) {
    double bytes = 0;
    for (const Shape& shape : kernel.inputs) bytes += static_cast<double>(shape.size());
    for (const Shape& shape : kernel.outputs) bytes += static_cast<double>(shape.size());
    largest = std::max(largest, bytes * (sizeof(double) + sizeof(float)));  // those of the reference, and the timed
  }
  const size_t count = cases.size() * types().size();
  cli::write_stdout(fmt::format(
      "{}: {} kernels in {} types on {}, {} rounds of all variants or as many as {} s allow\n"
      "about {}, and verifying; {} MiB for the largest tensors\n",
      name_, cases.size(), types().size(), hs::name(device), rounds_, seconds_,
      measure::minutes_text(static_cast<double>(count) * seconds_), report::mebibytes(static_cast<size_t>(largest))));
}

void KernelCommand::run(const cli::Flags& flags) {
  outputs_.open();
  const Device device = cli::resolve_device(device_);
  if (list_) return print_list(device);
  if (dry_run_) return print_plan(device);
  cli::use_threads(threads_);
  const measure::Peaks peaks = measure::measure_peaks(device);
  std::vector<measure::CaseTiming> timings;
  int wrong = 0;
  Json kernels = Json::array();
  for (const measure::KernelCase& kernel : cases_(batch_)) {
    for (const DType type : types()) {
      timings.push_back(measure::time_kernel(kernel, type, device, rounds_, seconds_));
      kernels.push_back(to_json(timings.back(), peaks));
      for (const measure::VariantTiming& one : timings.back().variants) wrong += one.wrong;
    }
  }
  Json record = report::new_record(name(), device);
  record["config"] = flags.config();
  record["peaks"] = {
      {"flops_per_second", peaks.flops}, {"flops_of", peaks.flops_of}, {"bytes_per_second", peaks.bytes}};
  record["choices"] = noted_choices();
  record["kernels"] = kernels;
  report::present(
      record,
      fmt::format("{}, batch {}, device {}, threads {}; peaks: {:.1f} GFLOP/s ({}), {:.1f} GB/s (a large copy)", name_,
                  batch_, hs::name(device), threads(), peaks.flops * 1e-9, peaks.flops_of, peaks.bytes * 1e-9),
      {to_table(timings, peaks)});
  outputs_.finish(record);
  if (wrong > 0) fail(ExitCode::internal, "{}: {} results are wrong; see the table", name(), wrong);
}

}  // namespace

std::unique_ptr<cli::Command> make_gemm_command() {
  return std::make_unique<KernelCommand>("gemm", "Verify and time every variant of the matrix product", gemm_cases);
}
std::unique_ptr<cli::Command> make_conv_command() {
  return std::make_unique<KernelCommand>("conv", "Verify and time every variant of the convolution", conv_cases);
}
std::unique_ptr<cli::Command> make_ops_command() {
  return std::make_unique<KernelCommand>("ops", "Verify and time every variant of the other kernels", op_cases);
}

}  // namespace hs::bench::commands
