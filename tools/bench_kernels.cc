#include "tools/bench_kernels.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "engine/engine.h"
#include "engine/executor.h"
#include "engine/tensor.h"
#include "engine/thread_pool.h"
#include "tools/commands.h"
#include "tools/engine_flags.h"

namespace lookback::tools {
namespace {

constexpr int64_t kStreamBytes = int64_t{256} << 20;
// More than caches hold, where bytes are what is measured; a few of a core's, where products are.
constexpr int64_t kStreamedBytes = int64_t{96} << 20;
constexpr int64_t kReusedBytes = int64_t{8} << 20;
constexpr int64_t kFewRows = 16;
constexpr int kRuns = 7;
constexpr int64_t kPeakRounds = 200000;

struct MachineFlags {
  int64_t threads = 0;
  std::vector<int> cpus;
  int64_t k = 2048;
  std::string kernels;
  bool json = false;
};

struct ProductRow {
  const char* type;
  const char* activations;
  int64_t rows;
  double bytes_per_s;
  double flop_per_s;
  double peak_per_s;  ///< measured in turns with it
};

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// A type that activations are multiplied in.
struct Activations {
  kernels::Element type;
  const char* name;
};
constexpr Activations kActivations[] = {{kernels::Element::kF32, "f32"},
                                        {kernels::Element::kBF16, "bf16"},
                                        {kernels::Element::kQ8, "int8"}};

/// Operations a second of all threads, in registers alone: once, for about a millisecond.
double MeasurePeak(const kernels::KernelTable& table, ThreadPool& threads, kernels::Element type) {
  std::atomic<double> operations = 0.0;
  const auto start = std::chrono::steady_clock::now();
  threads.For(threads.threads(), 1, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t i = begin; i < end; ++i) operations += table.peak(type, kPeakRounds);
  });
  return operations / SecondsSince(start);
}

/// One product of `rows` rows with a matrix of `type`, all threads, median of kRuns in turns with
/// the peak. Rows that are not multiplied in f32 are narrowed before, which is not timed.
ProductRow TimeProduct(const kernels::KernelTable& table, ThreadPool& threads,
                       kernels::Element type, const char* name, const Activations& activations,
                       int64_t rows, int64_t k) {
  const int64_t row_bytes = kernels::RowBytes(type, k);
  const int64_t outputs =
      std::max<int64_t>(64, (rows <= kFewRows ? kStreamedBytes : kReusedBytes) / row_bytes);
  // 0x3C3C is a normal number in bf16 and in f16; as integers of 8 and 4 bits the bytes are too.
  // In memory as a file and the engine align it.
  const Buffer weights(outputs * row_bytes);
  std::memset(weights.data(), 0x3C, static_cast<size_t>(weights.bytes()));
  const std::vector<uint16_t> scales(
      kernels::IsQuantized(type) ? static_cast<size_t>(outputs * kernels::QuantGroups(k)) : 0,
      0x1C00);
  const Buffer x(rows * k * 4);
  std::fill_n(x.as<float>(), rows * k, 0.5F);
  std::vector<float> y(static_cast<size_t>(rows * outputs));
  const int64_t groups = rows * kernels::QuantGroups(k);
  const Buffer q(groups * kernels::kQuantGroup);
  std::vector<float> scale(static_cast<size_t>(groups));
  std::vector<int32_t> sum(static_cast<size_t>(groups));
  const kernels::QuantizedRows quantized{q.as<int8_t>(), scale.data(), sum.data()};
  table.quantize_rows({x.as<float>(), k, quantized, k, 0, rows});
  const Buffer rounded(kernels::RoundedValues(rows, k) * 2);
  table.round_rows({x.as<float>(), k, rounded.as<uint16_t>(), k, rows, 0, rows});
  const kernels::WeightView w{weights.data(), type, scales.data()};
  std::vector<double> seconds, peaks;
  for (int run = 0; run < kRuns; ++run) {
    peaks.push_back(MeasurePeak(table, threads, activations.type));
    const auto start = std::chrono::steady_clock::now();
    threads.For(outputs, 64, [&](int64_t begin, int64_t end, int64_t) {
      if (activations.type == kernels::Element::kQ8) {
        table.integer_gemm({quantized, w, nullptr, y.data(), outputs, rows, k, begin, end});
      } else if (activations.type == kernels::Element::kBF16) {
        table.bf16_gemm(
            {rounded.as<uint16_t>(), w, nullptr, y.data(), outputs, rows, k, begin, end});
      } else {
        table.gemm({x.as<float>(), k, w, nullptr, y.data(), outputs, rows, k, begin, end});
      }
    });
    seconds.push_back(SecondsSince(start));
  }
  const double median = Median(seconds);
  return {name,
          activations.name,
          rows,
          static_cast<double>(weights.bytes() + std::ssize(scales) * 2) / median,
          2.0 * static_cast<double>(rows * outputs * k) / median,
          Median(peaks)};
}

Status BenchKernels(MachineFlags flags) {
  LOOKBACK_ASSIGN_OR_RETURN(const kernels::KernelTable* table, ChooseKernels(flags.kernels));
  LOOKBACK_RETURN_IF_ERROR(ResolveThreads(flags.threads, flags.cpus));
  ThreadPool threads(flags.threads, flags.cpus);
  const PinnedThread pinned = threads.PinCaller();
  const double before = MeasureStreamBandwidth(threads, kStreamBytes);
  std::vector<ProductRow> rows;
  using kernels::Element;
  struct Type {
    Element type;
    const char* name;
  };
  for (const Type& type : {Type{Element::kF32, "f32"}, Type{Element::kBF16, "bf16"},
                           Type{Element::kQ8, "q8"}, Type{Element::kQ4, "q4"}}) {
    for (const Activations& activations : kActivations) {
      const bool multiplied = activations.type == Element::kF32 ||
                              (activations.type == Element::kQ8 && IsQuantized(type.type)) ||
                              (activations.type == Element::kBF16 &&
                               type.type == activations.type && table->multiplies_bf16);
      if (!multiplied) continue;
      for (const int64_t count : {1, 4, 16, 64, 256}) {
        rows.push_back(
            TimeProduct(*table, threads, type.type, type.name, activations, count, flags.k));
      }
    }
  }
  const double after = MeasureStreamBandwidth(threads, kStreamBytes);
  const double stream = (before + after) / 2;
  if (flags.json) {
    Json products = Json::array();
    for (const ProductRow& row : rows) {
      products.push_back({{"weights", row.type},
                          {"activations", row.activations},
                          {"rows", row.rows},
                          {"bytes_per_s", row.bytes_per_s},
                          {"flop_per_s", row.flop_per_s},
                          {"peak_flop_per_s", row.peak_per_s}});
    }
    const Json json = {{"bench", "kernels"},
                       {"kernels", table->name},
                       {"threads", threads.threads()},
                       {"k", flags.k},
                       {"stream_bytes_per_s_before", before},
                       {"stream_bytes_per_s_after", after},
                       {"products", std::move(products)}};
    std::printf("%s\n", json.dump(2).c_str());
    return {};
  }
  std::printf("kernels %s, %lld threads, k %lld; stream probe %.2f GB/s before, %.2f after\n",
              table->name, static_cast<long long>(threads.threads()),
              static_cast<long long>(flags.k), before / 1e9, after / 1e9);
  std::printf(
      "  weights  activations  rows   weights GB/s  of the probe    GFLOP/s  of the peak\n");
  for (const ProductRow& row : rows) {
    std::printf("  %-7s  %-11s  %4lld  %13.2f  %10.1f %%  %9.1f  %9.1f %%\n", row.type,
                row.activations, static_cast<long long>(row.rows), row.bytes_per_s / 1e9,
                100.0 * row.bytes_per_s / stream, row.flop_per_s / 1e9,
                100.0 * row.flop_per_s / row.peak_per_s);
  }
  return {};
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

Status BenchCpu(MachineFlags flags) {
  LOOKBACK_ASSIGN_OR_RETURN(const kernels::KernelTable* table, ChooseKernels(flags.kernels));
  LOOKBACK_RETURN_IF_ERROR(ResolveThreads(flags.threads, flags.cpus));
  ThreadPool threads(flags.threads, flags.cpus);
  // Of every set that this CPU can run: what it reaches says nothing of what is chosen, or two
  // starts might choose differently.
  struct Set {
    const char* name;
    double peaks[std::size(kActivations)];
  };
  std::vector<Set> usable;
  for (const auto* const* set = kernels::UsableKernels(); *set != nullptr; ++set) {
    usable.push_back({(*set)->name, {}});
    for (size_t i = 0; i < std::size(kActivations); ++i) {
      std::vector<double> peaks;
      for (int run = 0; run < kRuns; ++run) {
        peaks.push_back(MeasurePeak(**set, threads, kActivations[i].type));
      }
      usable.back().peaks[i] = Median(peaks);
    }
  }
  flags.cpus.resize(std::min<size_t>(flags.cpus.size(), 1));
  ThreadPool first(1, flags.cpus);
  const double one = MeasureStreamBandwidth(first, kStreamBytes);
  const double all = MeasureStreamBandwidth(threads, kStreamBytes);
  if (flags.json) {
    Json sets = Json::array();
    for (const Set& set : usable) {
      sets.push_back({{"name", set.name},
                      {"f32_peak_flop_per_s", set.peaks[0]},
                      {"bf16_peak_flop_per_s", set.peaks[1]},
                      {"int8_peak_flop_per_s", set.peaks[2]}});
    }
    const Json json = {{"bench", "cpu"},           {"cpu", CpuName()},
                       {"threads", flags.threads}, {"kernels_usable", std::move(sets)},
                       {"kernels", table->name},   {"stream_bytes_per_s_one_thread", one},
                       {"stream_bytes_per_s", all}};
    std::printf("%s\n", json.dump(2).c_str());
    return {};
  }
  std::printf("%s\n  stream      %.2f GB/s with one thread, %.2f with %lld\n", CpuName().c_str(),
              one / 1e9, all / 1e9, static_cast<long long>(flags.threads));
  for (const Set& set : usable) {
    std::printf("  %-10s  peak %.1f GFLOP/s in f32, %.1f in bf16, %.1f in 8-bit integers%s\n",
                set.name, set.peaks[0] / 1e9, set.peaks[1] / 1e9, set.peaks[2] / 1e9,
                std::strcmp(set.name, table->name) == 0 ? "; chosen" : "");
  }
  return {};
}

void AddMachineBench(CLI::App& bench, const std::string& name, const std::string& about,
                     Status (*run)(MachineFlags), int& exit_code) {
  const auto flags = std::make_shared<MachineFlags>();
  CLI::App* command = bench.add_subcommand(name, about);
  AddThreadFlags(*command, flags->threads, flags->cpus);
  command->add_option("--kernels", flags->kernels, "Kernel set (default: what the engine takes)");
  if (run == BenchKernels) {
    command->add_option("--k", flags->k, "Values of a row of weights")
        ->check(CLI::Range(32, 1 << 20))
        ->capture_default_str();
  }
  command->add_flag("--json", flags->json, "One JSON document");
  command->callback([flags, run, &exit_code] { exit_code = Report(run(*flags)); });
}

}  // namespace

double Median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void AddKernelBenches(CLI::App& bench, int& exit_code) {
  AddMachineBench(bench, "kernels", "Products with weights of every type, one row to many",
                  BenchKernels, exit_code);
  AddMachineBench(bench, "cpu", "This CPU, its kernel sets, and how fast it reads memory", BenchCpu,
                  exit_code);
}

}  // namespace lookback::tools
