#include "workload/copies/peer_copies_workload.hpp"

#include <unistd.h>

#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "egt/core/wait.hpp"
#include "workload/common/findings.hpp"

namespace egt {
namespace {

constexpr const char* no_other_rank = "there is no other rank on this host";
constexpr std::size_t figures_of_offer = 128;  ///< size of an Offer in doubles
constexpr double fill_seconds = 60, leave_seconds = 10, hurried_leave_seconds = 0.2;

void put_text(const std::string& text, std::span<char> to) {
  text.copy(to.data(), to.size() - 1);
}

}  // namespace

/// Data that each rank sends to all ranks.
struct PeerCopiesWorkload::Offer {
  std::uint64_t host = 0;
  std::int32_t process = 0, opened = false;  ///< whether the previous rank's memory is open
  char memory[752] = {}, page[256] = {};     ///< handles; empty: none
};

PeerCopiesWorkload::PeerCopiesWorkload(Environment& environment)
    : environment_(environment),
      offers_(environment.device, environment.communicator, environment.board.line("main"),
              environment.peer_timeout_seconds),
      copies_(
          environment,
          {.name = "peer copies",
           .part = name(),
           .largest_chunk = 256u << 20,
           .injection = InjectionKind::collective,
           .is_hit = [this](const Injection& one) { return one.peer == from_; },
           .copy = [this](std::size_t chunk, std::uint64_t, Stream& stream) { return copy(chunk, stream); },
           .locate =
               [this](Fault& fault, std::size_t, std::uint64_t, const Mismatches*) {
                 fault.where = fmt::format("what rank {} copied from rank {}, a copy of {} B",
                                           environment_.place.rank, from_, copies_.chunk_bytes());
                 fault.blame = Blame::ambiguous;
                 fault.suspects = {from_, environment_.place.rank};
               }}) {}

PeerCopiesWorkload::~PeerCopiesWorkload() {
  if (process_of_reader_ == 0) return;
  static_cast<void>(wait_until(
      [this] { return Result<bool>(is_released(*left_, process_of_reader_)); },
      {.seconds = hurried_ ? hurried_leave_seconds : leave_seconds, .what = "the neighbour's leaving"}));
}

Pattern PeerCopiesWorkload::pattern(int rank, std::size_t chunk, PatternKind kind) const {
  return {.kind = kind, .seed = pattern_seed(environment_.seed, rank, PatternPurpose::peer_copy, chunk, 0)};
}

/// Allocates memory for the exchange in `start`, where a failure on one rank would leave its peers waiting.
Status PeerCopiesWorkload::prepare() {
  if (environment_.place.size > 1) EGT_TRY(offers_.prepare(figures_of_offer));
  if (environment_.place.local_size < 2) {
    impossible_ = no_other_rank;
    return {};
  }
  Device& device = environment_.device;
  EGT_TRY(copies_.prepare());
  const std::uint64_t bytes = copies_.chunk_bytes();
  auto shared = device.allocate_shared(PacedCopies::chunks * bytes);
  if (shared.status().code() == StatusCode::out_of_memory) return shared.status();
  auto page = SharedPages::create(sizeof(std::uint32_t));
  if (!shared.ok() || !page.ok()) {
    impossible_ = (shared.ok() ? page.status() : shared.status()).what();
    return {};
  }
  source_ = std::move(shared.value());
  left_ = std::move(page.value());
  for (std::size_t chunk = 0; chunk < PacedCopies::chunks; ++chunk) {
    const WordsView words{source_.buffer.as<std::uint32_t>() + chunk * bytes / 4, bytes / 4};
    EGT_TRY(device.fill(words, pattern(environment_.place.rank, chunk), copies_.stream(0)));
    EGT_TRY_ASSIGN(copied_[chunk], device.allocate(bytes));
  }
  return device.synchronize(copies_.stream(0), fill_seconds);
}

Result<std::vector<PeerCopiesWorkload::Offer>> PeerCopiesWorkload::exchange(const Offer& own) {
  static_assert(figures_of_offer * sizeof(double) == sizeof(Offer));
  std::array<double, figures_of_offer> reported;
  std::memcpy(reported.data(), &own, sizeof own);
  EGT_TRY_ASSIGN(const std::vector<double> all,
                 offers_.all(reported, 0, "peer copies: waits for the neighbours"));
  std::vector<Offer> each(all.size() / figures_of_offer);
  std::memcpy(static_cast<void*>(each.data()), all.data(), all.size() * sizeof(double));
  return each;
}

/// The second exchange shows which rank copies from this one. This rank's memory must outlive those copies.
Status PeerCopiesWorkload::start() {
  const RankPlace& place = environment_.place;
  if (place.size < 2) return {};
  Offer own{.host = std::hash<std::string>()(place.host_id), .process = ::getpid()};
  if (impossible_.empty()) {
    put_text(source_.handle, own.memory);
    put_text(left_->handle(), own.page);
  }
  EGT_TRY_ASSIGN(const std::vector<Offer> all, exchange(own));
  const auto size = static_cast<int>(all.size());
  const auto neighbour = [&](int turn) {
    int rank = place.rank;
    do rank = (rank + turn + size) % size;
    while (all[static_cast<std::size_t>(rank)].host != own.host);
    return rank;
  };
  if (neighbour(-1) == place.rank) impossible_ = no_other_rank;
  if (impossible_.empty()) {
    from_ = neighbour(-1);
    const Status opened = open(all[static_cast<std::size_t>(from_)]);
    if (!opened.ok()) impossible_ = fmt::format("the memory of rank {}: {}", from_, opened.what());
  }
  own.opened = impossible_.empty();
  EGT_TRY_ASSIGN(const std::vector<Offer> now, exchange(own));
  if (const Offer& to = now[static_cast<std::size_t>(neighbour(1))]; left_ && to.opened)
    process_of_reader_ = to.process;
  return impossible_.empty() ? begin() : Status();
}

Status PeerCopiesWorkload::begin() {
  EGT_TRY(copies_.measure_rate(static_cast<double>(copies_.chunk_bytes()),
                               [this] { return copy(0, copies_.stream(0)).status(); }));
  for (std::size_t chunk = 0; chunk < PacedCopies::chunks; ++chunk)
    EGT_TRY(
        environment_.device.set_zero(copied_[chunk].data(), copied_[chunk].bytes(), copies_.stream(chunk)));
  return copies_.start();
}

Status PeerCopiesWorkload::open(const Offer& from) {
  if (from.memory[0] == 0) return {StatusCode::unavailable, "it does not share it"};
  EGT_TRY_ASSIGN(const SharedHandle page, SharedHandle::parse(from.page));
  EGT_TRY_ASSIGN(left_there_, SharedPages::open(page));
  EGT_TRY_ASSIGN(opened_, environment_.device.open_shared(from.memory));
  return {};
}

/// Before the copy, the destination has the bitwise inverse of the last copy.
Result<PacedCopies::Brought> PeerCopiesWorkload::copy(std::size_t chunk, Stream& stream) {
  const WordsView words = copies_.words(copied_[chunk]);
  EGT_TRY(environment_.device.copy(words.data, opened_.as<std::byte>() + chunk * words.bytes(), words.bytes(),
                                   stream));
  return PacedCopies::Brought{words, pattern(from_, chunk),
                              pattern(from_, chunk, PatternKind::random_inverse)};
}

void PeerCopiesWorkload::leave() {
  opened_ = Buffer();
  if (left_there_) report_released(*left_there_);
}

Status PeerCopiesWorkload::finish(const Shutdown& ending) {
  hurried_ = ending.hurry;
  EGT_TRY_ASSIGN(const bool ended, copies_.finish(ending));
  if (ended) leave();
  return {};
}

PartReport PeerCopiesWorkload::report() const {
  PartReport report;
  report.name = name();
  report.description = "copies from a neighbour's device on this host, verified on this one";
  report.figures = {{"from", from_ < 0 ? Json() : Json(from_)},
                    {"not_possible", impossible_.empty() ? Json() : Json(impossible_)}};
  copies_.report(report);
  if (!impossible_.empty()) note_not_run(report, "peer copies", impossible_);
  report.load.peer_copies = copies_.seconds_alone();
  if (const auto rate = copies_.rate()) report.load.alone = {{"peer_copy_gb_per_s", *rate * 1e-9}};
  return report;
}

}  // namespace egt
