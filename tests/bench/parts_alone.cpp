// Parts of the load alone, each beside what bounds it, in one run on one device.
//
//   build/egt_bench_parts_alone --backend host
//   build/egt_bench_parts_alone --backend cuda
//
// Tests of memory beside a copy within the device, bytes read and written counted alike; products over
// memory, each with its digest, beside the bare product.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>

#include "command/platform.hpp"
#include "workload/common/alone_rate.hpp"
#include "workload/memory/memory_patrol.hpp"

namespace egt {
namespace {

struct Sizes {
  std::uint64_t memory_bytes;  ///< that is verified
  std::int64_t rows;           ///< of a product
  double lasting_ms;           ///< of each measurement
};

constexpr Pattern first{.kind = PatternKind::random, .seed = 1}, second{.kind = PatternKind::address};

void show(const char* what, double rate, double bound, double unit, const char* unit_name) {
  fmt::print("{:<34} {:>10.4g} {:<8} {:>6.3f}\n", what, rate / unit, unit_name, rate / bound);
}

Status memory(Device& device, Stream& stream, const Sizes& sizes) {
  EGT_TRY_ASSIGN(const Buffer buffer, device.allocate(sizes.memory_bytes));
  EGT_TRY_ASSIGN(const Buffer report, device.allocate(sizeof(Mismatches)));
  const std::size_t half = sizes.memory_bytes / 2;
  const WordsView words{buffer.as<std::uint32_t>(), sizes.memory_bytes / sizeof(std::uint32_t)};
  auto* const found = report.as<Mismatches>();
  const auto bytes = static_cast<double>(sizes.memory_bytes);
  EGT_TRY(device.reset(found, stream));
  EGT_TRY(device.fill(words, first, stream));
  EGT_TRY_ASSIGN(const double copy,
                 rate_alone(
                     device, stream, bytes,
                     [&] { return device.copy(buffer.as<char>() + half, buffer.data(), half, stream); },
                     sizes.lasting_ms));
  EGT_TRY(device.fill(words, first, stream));
  EGT_TRY_ASSIGN(const double verify,
                 rate_alone(
                     device, stream, bytes, [&] { return device.verify(words, first, found, stream); },
                     sizes.lasting_ms));
  EGT_TRY_ASSIGN(
      const double refill,
      rate_alone(
          device, stream, 4 * bytes,
          [&] {
            EGT_TRY(device.verify_and_fill(words, first, second, Direction::ascending, found, stream));
            return device.verify_and_fill(words, second, first, Direction::descending, found, stream);
          },
          sizes.lasting_ms));
  show("copy", copy, copy, 1e9, "GB/s");
  show("verify", verify, copy, 1e9, "GB/s");
  show("verify and refill", refill, copy, 1e9, "GB/s");
  return {};
}

Status products(Device& device, Stream& stream, const Sizes& sizes, Precision precision) {
  const ElementType type = storage_type(precision);
  const std::int64_t rows = sizes.rows;
  const std::int64_t inner = is_narrow(precision) ? 2 * rows : rows;  // as the patrol does
  const auto elements = static_cast<std::uint64_t>(rows * inner);
  EGT_TRY_ASSIGN(const Buffer operands, device.allocate(2 * elements * size_of(type)));
  const ElementType sums = sum_type(precision);
  EGT_TRY_ASSIGN(const Buffer product,
                 device.allocate(static_cast<std::uint64_t>(rows * rows) * size_of(sums)));
  EGT_TRY_ASSIGN(const Buffer digest, device.allocate(sizeof(Digest)));
  EGT_TRY(device.fill({operands.as<std::uint32_t>(), operands.bytes() / sizeof(std::uint32_t)},
                      {.kind = PatternKind::finite, .seed = 1}, stream));
  char* const a = operands.as<char>();
  const Gemm gemm{.precision = precision,
                  .a = {a, type, rows, inner},
                  .b = {a + elements * size_of(type), type, rows, inner},
                  .d = {product.data(), sums, rows, rows},
                  .b_transposed = true};
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(elements);
  EGT_TRY_ASSIGN(const double bare,
                 rate_alone(
                     device, stream, flops, [&] { return device.gemm(gemm, stream); }, sizes.lasting_ms));
  EGT_TRY_ASSIGN(const double checked, rate_alone(
                                           device, stream, flops,
                                           [&] {
                                             EGT_TRY(device.gemm(gemm, stream));
                                             return device.digest(
                                                 {product.as<std::uint32_t>(), product.bytes() / 4},
                                                 digest.as<Digest>(), stream);
                                           },
                                           sizes.lasting_ms));
  const std::string name = fmt::format("{} product of {}", to_string(precision), rows);
  show(name.c_str(), bare, bare, 1e12, "TFLOP/s");
  show((name + ", digested").c_str(), checked, bare, 1e12, "TFLOP/s");
  return {};
}

Status run(Backend backend) {
  EGT_TRY_ASSIGN(const auto device, open_device(backend, {}, {.hostname = "here"}));
  EGT_TRY_ASSIGN(const auto stream, device->create_stream(StreamPriority::normal, StreamUse::all));
  const bool is_host = device->info().backend == "host";
  const Sizes sizes = is_host ? Sizes{512u << 20, 512, 500} : Sizes{8ull << 30, 8192, 2000};
  fmt::print("{}\n{:<34} {:>10} {:<8} {:>6}\n", device->info().name, "alone", "rate", "", "ratio");
  EGT_TRY(memory(*device, *stream, sizes));
  for (const Precision precision :
       {Precision::bf16, Precision::tf32, Precision::fp16, Precision::fp8, Precision::int8})
    if (device->supports(precision).yes()) EGT_TRY(products(*device, *stream, sizes, precision));
  return {};
}

}  // namespace
}  // namespace egt

int main(int argc, char** argv) {
  CLI::App app;
  std::string backend = "cuda";
  app.add_option("--backend", backend)->check(CLI::IsMember({"cuda", "host"}));
  CLI11_PARSE(app, argc, argv);
  const egt::Status status = egt::run(backend == "host" ? egt::Backend::host : egt::Backend::cuda);
  if (!status.ok()) fmt::print(stderr, "egt_bench_parts_alone: {}\n", status.what());
  return status.ok() ? 0 : 1;
}
