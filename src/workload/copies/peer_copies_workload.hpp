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

/// Copies chunks from the memory of the rank before this one on the same host (the last one before the
/// first), so that the links between all neighbours are busy. Each rank fills what others copy once; where
/// they are copied to, other words lie before each copy, so that one that does nothing is seen. No copy waits
/// for another rank, so one that stops, or begins anew, holds nobody up. Where there is no such rank, or its
/// memory cannot be reached, nothing is planned, and the result says why.
class PeerCopiesWorkload : public Workload {
 public:
  explicit PeerCopiesWorkload(Environment& environment);
  /// Waits a while for who copies from this rank's memory.
  ~PeerCopiesWorkload() override;

  std::string name() const override { return "peer-copies"; }
  Status prepare() override;
  /// Collective.
  Status start() override;
  Status enqueue(const Step& step) override {
    copies_.set_step(step.index);
    return {};
  }
  /// Relays what the thread failed with.
  Status retire(std::int64_t, StepOutcome&) override { return copies_.failure(); }
  void stop_background() override { copies_.ask_to_stop(); }
  Status finish(const Ending& ending) override;
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
  std::string impossible_;     ///< why nothing is copied; empty: it is
  int from_ = -1;              ///< whose memory is copied
  int process_of_reader_ = 0;  ///< that copies from `source_`; 0: none does
  bool hurried_ = false;
  SharedBuffer source_;  ///< the chunks that the next rank copies
  std::optional<SharedPages> left_,
      left_there_;  ///< a word: nobody copies from `source_`, or `opened_`, any more
  Buffer opened_;   ///< the source of `from_`
  std::array<Buffer, PacedCopies::chunks> copied_;
  PacedCopies copies_;  ///< last: its streams end before the memory goes
};

}  // namespace egt
