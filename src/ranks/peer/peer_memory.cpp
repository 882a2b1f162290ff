#include "ranks/peer/peer_memory.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "device/shared/shared_handle.hpp"
#include "egt/core/process_limits.hpp"
#include "egt/core/wait.hpp"
#include "egt/ranks/agreement.hpp"

namespace egt {

/// A rank's memory offered to its peers: group members, bytes, handles of memory and signal page. Sent as one
/// line, with "-" for each if it shares nothing.
struct PeerMemory::Offer {
  std::string members = "-";
  std::string bytes = "-";
  std::string memory = "-";
  std::string page = "-";

  std::string line() const { return fmt::format("{} {} {} {}", members, bytes, memory, page); }
  static Offer parse(const std::string& line) {
    Offer offer;
    std::istringstream(line) >> offer.members >> offer.bytes >> offer.memory >> offer.page;
    return offer;
  }
};

Result<std::unique_ptr<PeerMemory>> PeerMemory::prepare(Device& device, int rank, std::size_t bytes,
                                                        const std::vector<int>& ranks, Offer& offer) {
  if (ranks.empty()) return std::unique_ptr<PeerMemory>();
  const auto own = std::find(ranks.begin(), ranks.end(), rank);
  if (own == ranks.end())
    return Status(StatusCode::invalid_argument,
                  fmt::format("rank {} is not among those that shall share memory with it: {}", rank,
                              fmt::join(ranks, ", ")));
  std::unique_ptr<PeerMemory> made(
      new PeerMemory(bytes, ranks.size(), static_cast<int>(own - ranks.begin())));
  EGT_TRY_ASSIGN(SharedBuffer shared, device.allocate_shared(bytes));
  EGT_TRY_ASSIGN(SharedPages page, SharedPages::create(made->page_bytes()));
  offer = {fmt::format("{}", fmt::join(ranks, ",")), std::to_string(bytes), shared.handle, page.handle()};
  Piece& piece = made->pieces_[static_cast<std::size_t>(made->index_)];
  piece.memory = std::move(shared.buffer);
  piece.page = std::move(page);
  EGT_TRY_ASSIGN(piece.registered, device.register_signals(piece.page->data(), piece.page->bytes()));
  return made;
}

Status PeerMemory::open_peers(Device& device, const std::vector<int>& ranks, const Offer& own,
                              const std::vector<Offer>& offers) {
  for (std::size_t member = 0; member < ranks.size(); ++member) {
    if (static_cast<int>(member) == index_) continue;
    const auto rank = static_cast<std::size_t>(ranks[member]);
    if (ranks[member] < 0 || rank >= offers.size())
      return Status(StatusCode::invalid_argument, fmt::format("there is no rank {}", ranks[member]));
    const Offer& offer = offers[rank];
    if (offer.members != own.members || offer.bytes != own.bytes)
      return Status(StatusCode::invalid_argument,
                    fmt::format("rank {} shares {} bytes among the ranks {}, and not {} among {}", rank,
                                offer.bytes, offer.members, own.bytes, own.members));
    Piece& piece = pieces_[member];
    EGT_TRY_ASSIGN(piece.memory, device.open_shared(offer.memory));
    EGT_TRY_ASSIGN(const SharedHandle handle, SharedHandle::parse(offer.page));
    EGT_TRY_ASSIGN(SharedPages page, SharedPages::open(handle));
    piece.page = std::move(page);
    piece.process = handle.pid;
    EGT_TRY_ASSIGN(piece.registered, device.register_signals(piece.page->data(), piece.page->bytes()));
  }
  return {};
}

Result<std::unique_ptr<PeerMemory>> PeerMemory::open(Device& device, Control& control, std::size_t bytes,
                                                     const std::vector<int>& ranks) {
  Offer own;
  Result<std::unique_ptr<PeerMemory>> prepared = prepare(device, control.place().rank, bytes, ranks, own);
  EGT_TRY(agree(control, prepared.status()));
  std::unique_ptr<PeerMemory> made = std::move(prepared.value());
  EGT_TRY_ASSIGN(const std::vector<std::string> lines, all_gather(control, own.line()));
  std::vector<Offer> offers;
  for (const std::string& line : lines) offers.push_back(Offer::parse(line));
  const Status agreed = agree(control, made ? made->open_peers(device, ranks, own, offers) : Status());
  if (!agreed.ok()) {
    if (made) made->release_peers();
    static_cast<void>(control.barrier());  // no rank frees what another one still has open
    return agreed;
  }
  if (made) made->joined_ = true;
  return made;
}

void PeerMemory::release_peers() {
  for (int member = 0; member < size(); ++member)
    if (member != index_) pieces_[static_cast<std::size_t>(member)].memory = Buffer();
}

bool PeerMemory::peers_have_left() const {
  return std::all_of(pieces_.begin(), pieces_.end(), [this](const Piece& piece) {
    if (&piece == &pieces_[static_cast<std::size_t>(index_)]) return true;
    return is_released(*piece.page, piece.process);
  });
}

PeerMemory::~PeerMemory() {
  if (!joined_) return;
  release_peers();
  const Piece& own = pieces_[static_cast<std::size_t>(index_)];
  report_released(*own.page);
  static_cast<void>(wait_until([this] { return Result<bool>(peers_have_left()); },
                               {.seconds = leave_seconds, .what = "the peers' leaving"}));
}

std::uint32_t* PeerMemory::word(int member, std::size_t index) const {
  return static_cast<std::uint32_t*>(pieces_[static_cast<std::size_t>(member)].page->data()) + index;
}

std::uint32_t* PeerMemory::signal(int member, PeerSignal which, int sender) const {
  return word(member, first_signal + peer_signals * static_cast<std::size_t>(sender) +
                          static_cast<std::size_t>(which));
}

void PeerMemory::give_up() {
  const std::lock_guard lock(giving_up_);
  if (given_up_.joinable()) return;
  for (int member = 0; member < size(); ++member)
    std::atomic_ref(*word(member, given_up_word)).store(1, std::memory_order_release);
  const auto end_waits = [this] {
    constexpr std::uint32_t latest = 0x7FFFFFFF;
    for (int sender = 0; sender < size(); ++sender)
      for (const PeerSignal which : {PeerSignal::come, PeerSignal::taken})
        std::atomic_ref(*signal(index_, which, sender)).store(latest, std::memory_order_release);
  };
  end_waits();
  auto thread = start_thread<std::jthread>("the end of peer copies", [end_waits](std::stop_token stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      end_waits();
    }
  });
  if (thread.ok()) given_up_ = std::move(thread.value());
}

bool PeerMemory::is_given_up() const {
  return std::atomic_ref(*word(index_, given_up_word)).load(std::memory_order_acquire) != 0;
}

std::byte* PeerMemory::data(int member) const {
  return pieces_[static_cast<std::size_t>(member)].memory.as<std::byte>();
}

}  // namespace egt
