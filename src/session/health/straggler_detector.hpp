#pragma once

#include "egt/core/record.hpp"
#include "egt/core/record_queue.hpp"
#include "egt/report/sink.hpp"
#include "judge/peer_review.hpp"

namespace egt {

/// Runs a PeerReview on all ranks' records, on rank 0. Its findings go into `records`.
class StragglerDetector : public Sink {
 public:
  /// `records` outlives the object.
  explicit StragglerDetector(RecordQueue& records) : records_(records) {}

  Status write(const Record& record) override {
    for (const Finding& finding : review_.add(record)) records_.emit(finding, record.step);
    return {};
  }
  Status flush() override { return {}; }

 private:
  RecordQueue& records_;
  PeerReview review_;
};

}  // namespace egt
