#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/shared/shared_pages.hpp"
#include "workload/common/value_exchange.hpp"
#include "workload/copies/paced_copies.hpp"

namespace egt {

/// Copies chunks from the memory of the previous rank on the same node (the first copies from the last), so
/// that the links between all neighbours are busy. Each rank fills its source once. The destination holds
/// other words before each copy, so that a copy that does nothing is detected. Copies never wait for another
/// rank, so a stopped or restarted rank delays no other. Without such a rank, or if its memory is not
/// accessible, no copies are planned, and the result gives the reason.
class PeerCopiesWorkload : public Workload {
 public:
  explicit PeerCopiesWorkload(Environment& environment);
  /// Waits a limited time for the rank that copies from this rank's memory.
  ~PeerCopiesWorkload() override;

  std::string name() const override { return "peer-copies"; }
  Status prepare() override;
  /// Collective.
  Status start() override;
  Status enqueue(const Step& step) override {
    copies_.set_step(step.index);
    return {};
  }
  /// Returns the thread's error.
  Status retire(std::int64_t, StepOutcome&) override { return copies_.failure(); }
  void stop_background() override { copies_.ask_to_stop(); }
  Status finish(const Shutdown& ending) override;
  PartReport report() const override;

 private:
  struct Offer;

  Pattern pattern(int rank, std::size_t chunk, PatternKind kind = PatternKind::random) const;
  Result<std::vector<Offer>> exchange(const Offer& own);
  Status open(const Offer& from);
  Status begin();
  Result<PacedCopies::Brought> copy(std::size_t chunk, Stream& stream);
  void leave();

  Environment& environment_;
  ValueExchange offers_;
  std::string impossible_;     ///< reason why no copies run; empty: they run
  int from_ = -1;              ///< rank whose memory is copied
  int process_of_reader_ = 0;  ///< process that copies from `source_`; 0: none
  bool hurried_ = false;
  SharedBuffer source_;  ///< chunks that the next rank copies
  std::optional<SharedPages> left_,
      left_there_;  ///< signals that nothing reads `source_` (or `opened_`) any more
  Buffer opened_;   ///< the source memory of rank `from_`
  std::array<Buffer, PacedCopies::chunks> copied_;
  PacedCopies copies_;  ///< last: its streams finish before the memory is freed
};

}  // namespace egt
