#include "bench/measure/ranks.h"

#include <dlfcn.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "bench/cli/console.h"
#include "bench/cli/environment.h"
#include "bench/measure/doctor.h"
#include "engine/check.h"
#include "engine/files/crc32c.h"
#include "engine/parallel.h"

namespace hs::bench::measure {
namespace {

using cli::Group;

// "0-3,8": the cores that this process may use, and their number.
std::string allowed_cores(int64_t& count) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return "unknown";
  count = cores();  // fewer with a quota of time
  std::string text;
  for (int first = 0; first < CPU_SETSIZE; ++first) {
    if (!CPU_ISSET(first, &allowed)) continue;
    int last = first;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &allowed)) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (last > first) text += fmt::format("-{}", last);
    first = last;
  }
  return text;
}

// Checksums of the program and of the engine's library.
std::string binary() {
  Dl_info library = {};
  dladdr(reinterpret_cast<const void*>(&crc32c), &library);
  std::string text = cli::build_info.commit;
  for (const char* file : {"/proc/self/exe", library.dli_fname}) {
    std::ifstream in(file, std::ios::binary);
    std::array<char, 1 << 16> block;
    uint32_t sum = 0;
    while (in.read(block.data(), block.size()) || in.gcount() > 0) {
      sum = crc32c(block.data(), static_cast<size_t>(in.gcount()), sum);
    }
    text += fmt::format(" {:08x}", sum);
  }
  return text;
}

// Each rank of a machine uses a GPU of its own, by the order of ranks: the variable is read at the first call of CUDA.
// A launcher that has given each rank one device has chosen already. places: "HOST CORES" of each rank
void choose_gpu(const std::vector<std::string>& places, size_t rank) {
  const auto host = [&](size_t i) { return places[i].substr(0, places[i].rfind(' ')); };
  size_t before = 0, here = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (host(i) != host(rank)) continue;
    ++here;
    before += i < rank;
  }
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<std::string> devices;
  for (std::stringstream list(visible ? visible : ""); list.good();) std::getline(list, devices.emplace_back(), ',');
  if (here == 1 || (visible && devices.size() == 1)) return;
  // One too many for the list: CUDA then finds no device.
  const std::string own = !visible ? std::to_string(before) : before < devices.size() ? devices[before] : "-1";
  ::setenv("CUDA_VISIBLE_DEVICES", own.c_str(), 1);
}

}  // namespace

void Ranks::declare(cli::Flags& flags) {
  const auto is_on = [this] { return this->is_on(); };
  flags
      .choice(
          "--reduce", rare(Group::processes).moves({"exchange"}), reduce_, {"auto", "tree", "fast"},
          "Sum of the micro-batches: by a tree, the same bits on any number of ranks, for an addition and a copy of "
          "all gradients each; fast: one after another, and by MPI's or NCCL's all-reduce; auto: tree under mpirun")
      .record("reduce", [this] { return sum().tree ? "tree" : "fast"; });
  flags.integer("--bucket-kib", rare(Group::processes).keeps_bits().counts_if(is_on).moves({"exchange"}), bucket_kib_,
                1, 1 << 20, "With ranks: gradients that are sent together, KiB");
  flags.integer("--halving-kib", rare(Group::processes).keeps_bits().counts_if(is_on).moves({"exchange"}), halving_kib_,
                0, 1 << 20,
                "With ranks: buckets of this many KiB or more are halved, not doubled: fewer bytes, more messages");
  flags.named_choice("--wire", rare(Group::processes).moves({"exchange"}), wire_,
                     {{"f32", Wire::f32}, {"bf16", Wire::bf16}},
                     "With ranks: type of the gradients that are sent; bf16: half the bytes, rounded sums, whose bits "
                     "depend on the number of ranks");
  flags.real("--rank-timeout", rare(Group::processes).keeps_bits().counts_if(is_on), timeout_, 0.1, 86400,
             "With ranks: seconds after which a rank is given up");
}

void Ranks::join(int64_t& threads) {
  if (launched_ranks() == 0) {
    if (wire_ != Wire::f32) fail(ExitCode::usage, "--wire bf16: there are no other ranks; start with mpirun -n 2");
    return;
  }
  exchange_ = std::make_unique<Exchange>(open_mpi, options());
  if (exchange_->size() > 1) cli::name_rank(exchange_->rank());
  if (!is_first()) cli::say_errors_only();
  int64_t cores_here = 1;
  const std::string cores = allowed_cores(cores_here), place = exchange_->host() + " " + cores;
  const std::vector<std::string> places = exchange_->share(place);
  choose_gpu(places, static_cast<size_t>(exchange_->rank()));
  // Ranks that are bound to the same cores share them.
  if (threads == 0) threads = std::max<int64_t>(1, cores_here / std::ranges::count(places, place));
  const std::vector<std::string> counts = exchange_->share(std::to_string(threads));
  for (size_t i = 0; i < places.size(); ++i) {
    const size_t blank = places[i].rfind(' ');
    places_.push_back({{"host", places[i].substr(0, blank)},
                       {"cores", places[i].substr(blank + 1)},
                       {"threads", Json::parse(counts[i])}});
  }
}

void Ranks::use(Device device) {
  if (!is_on()) return;
  const std::vector<std::string> devices = exchange_->share(name(device));
  for (size_t rank = 1; rank < devices.size(); ++rank) {
    if (devices[rank] == devices[0]) continue;
    fail(ExitCode::usage,
         "--device: rank 0 would train on {}, rank {} on {}; use --device cpu, or as many ranks on each machine as it "
         "has GPUs",
         devices[0], rank, devices[rank]);
  }
  device_sums_ = open_sums(device, *exchange_, options());
}

void Ranks::check(int64_t batch, int64_t accumulate) const {
  if (!is_on()) return;
  const int ranks = exchange_->size();
  if (wire_ == Wire::bf16 && !sum().tree) {
    fail(ExitCode::usage, "--wire bf16: the all-reduce of MPI and NCCL adds f32 here; use --reduce tree");
  }
  if (accumulate >= ranks) return;
  const int64_t samples = batch * accumulate, smaller = std::max<int64_t>(1, samples / ranks);
  fail(ExitCode::usage,
       "--accumulate {}: {} ranks need {} or more micro-batches a step; for steps of {} samples use --batch {} "
       "--accumulate {}",
       accumulate, ranks, ranks, samples, smaller, (samples + smaller - 1) / smaller);
}

void Ranks::compare(const std::map<std::string, std::string>& identity) const {
  if (!is_on()) return;
  std::string own = fmt::format("program\t{}\n", binary());
  for (const auto& [name, value] : identity) {
    own += fmt::format("{}\t{}\n", name.substr(name.starts_with("config.") ? 7 : 0), value);
  }
  const std::vector<std::string> all = exchange_->share(own);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const size_t at = static_cast<size_t>(std::ranges::mismatch(all[0], all[rank]).in1 - all[0].begin());
    const auto line = [at](const std::string& text) {
      const size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
      return text.substr(begin, text.find('\n', begin) - begin);
    };
    const std::string first = line(all[0]), other = line(all[rank]);
    const size_t tab = first.find('\t');
    fail(ExitCode::rank, "rank {}: {} is {}, and {} on rank 0; start all ranks with the same program, flags and data",
         rank, first.substr(0, tab), other.substr(std::min(other.find('\t') + 1, other.size())),
         first.substr(std::min(tab + 1, first.size())));
  }
}

std::string Ranks::from_first(const std::string& text) const {
  return is_on() ? exchange_->share(is_first() ? text : "")[0] : text;
}

SumConfig Ranks::sum() const {
  const bool tree = reduce_ == "tree" || (reduce_ == "auto" && launched_ranks() > 0);
  return {
      .tree = tree, .exchange = exchange_.get(), .device_sums = device_sums_.get(), .bucket_bytes = bucket_kib_ << 10};
}

std::string Ranks::trace(const StepProfile& steps, const Json& facts) const {
  size_t dropped = steps.profile.dropped;
  if (!is_on()) return trace_file({trace_events(steps)}, dropped, facts);
  const double start = steps.profile.start - exchange_->clock_ahead();  // in rank 0's time
  double first = start;
  const Json own = {{"start", start}, {"dropped", dropped}};
  dropped = 0;
  for (const std::string& text : exchange_->share(own.dump())) {
    const Json other = Json::parse(text);
    first = std::min(first, other["start"].get<double>());
    dropped += other["dropped"].get<size_t>();
  }
  const TraceProcess process = {.id = exchange_->rank(),
                                .name = fmt::format("rank {} on {}", exchange_->rank(), exchange_->host()),
                                .start = start - first};
  const std::vector<std::string> all = exchange_->share(trace_events(steps, process), Exchange::With::first);
  return is_first() ? trace_file(all, dropped, facts) : "";
}

void Ranks::leave() {
  if (!is_on()) return;
  exchange_->share("");  // nobody needs the others' devices any more
  device_sums_.reset();
  exchange_->close();
}

void Ranks::start_measuring() {
  if (is_on()) before_ = sum().sums()->seconds();
}

Json Ranks::to_json(const std::vector<RunRecord>& runs) const {
  if (!is_on()) return nullptr;
  ExchangeSeconds seconds = sum().sums()->seconds();
  seconds.active -= before_.active;
  seconds.exposed -= before_.exposed;
  seconds.sums -= before_.sums;
  seconds.bytes -= before_.bytes;
  double training = 0, waiting = 0;
  for (const RunRecord& run : runs) {
    training += run.result.seconds;
    waiting += run.result.parts.exchange;
  }
  const Verdict verdict = diagnose_ranks({training, waiting, seconds.active, seconds.exposed});
  return {{"count", exchange_->size()},
          {"places", places_},
          {"sums", seconds.sums},
          {"bytes_sent", seconds.bytes},
          {"seconds", seconds.active},
          {"exposed_seconds", seconds.exposed},
          {"overlap", seconds.active > 0 ? Json(std::max(0.0, 1 - seconds.exposed / seconds.active)) : Json(nullptr)},
          {"verdict", {{"name", verdict.name}, {"reason", verdict.reason}, {"advice", verdict.advice}}}};
}

std::string Ranks::verdict_line(const Json& ranks) {
  if (ranks.is_null()) return "";
  const auto text = [&](const char* member) { return ranks["verdict"][member].get<std::string>(); };
  return fmt::format("ranks: {}: {}; try next: {}\n", text("name"), text("reason"), text("advice"));
}

std::string Ranks::line() const {
  if (!is_on()) return "";
  std::vector<std::pair<std::string, std::vector<size_t>>> groups;
  for (size_t rank = 0; rank < places_.size(); ++rank) {
    const Json& place = places_[rank];
    const std::string where =
        fmt::format("on {}, cores {}, {} thread{} each", place["host"].get<std::string>(),
                    place["cores"].get<std::string>(), place["threads"].get<int>(), place["threads"] == 1 ? "" : "s");
    if (groups.empty() || groups.back().first != where) groups.push_back({where, {}});
    groups.back().second.push_back(rank);
  }
  std::string text =
      fmt::format("{} rank{}, sums: {}", places_.size(), places_.size() == 1 ? "" : "s", sum().tree ? "tree" : "fast");
  for (const auto& [where, ranks] : groups) text += fmt::format("; {} {}", fmt::join(ranks, ", "), where);
  return text;
}

}  // namespace hs::bench::measure
