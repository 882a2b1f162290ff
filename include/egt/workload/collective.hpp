#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "egt/workload/options.hpp"
#include "egt/workload/workload.hpp"

namespace egt {

/// From time to time, while the devices are busy with a step: an all-reduce and a broadcast whose every
/// element is known beforehand. Contributions are small whole numbers, so their sum is exact in any order.
/// With one rank there is nothing to do.
class CollectiveWorkload : public Workload {
 public:
  /// `stream`: gives, from `prepare` on, the stream on which the communicator's other collectives run.
  CollectiveWorkload(const Environment& environment, const CollectiveOptions& options,
                     std::function<Stream&()> stream);

  std::string name() const override { return "collective"; }
  Status prepare() override;
  Status enqueue(const Step& step) override;
  Status retire(std::int64_t step, StepOutcome& outcome) override;
  Status finish(bool hurry) override;
  PartReport report() const override;

 private:
  bool planned() const { return environment_.place.size > 1; }
  bool has_round(std::int64_t step) const { return planned() && step % options_.every == options_.every / 2; }
  Status enqueue_round(std::int64_t step);
  Status collect_round(std::int64_t step);
  void look_at(const Mismatches& found, const char* detector, std::int64_t step);

  Environment environment_;
  CollectiveOptions options_;
  std::function<Stream&()> stream_;
  Buffer data_, reports_, reports_pinned_;  // [0] all-reduce, [1] broadcast
  std::unique_ptr<Event> sum_begin_, sum_end_, broadcast_begin_, broadcast_end_, done_;
  std::uint64_t rounds_ = 0, elements_checked_ = 0, mismatches_ = 0;
  double sum_ms_ = 0, broadcast_ms_ = 0;
};

}  // namespace egt
