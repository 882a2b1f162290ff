#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/report/sink.hpp"

namespace egt {

/// What a figure was within a stretch of time: a short peak stays, however long the stretch.
struct Bucket {
  double least = 0;
  double most = 0;
  double sum = 0;
  std::uint32_t count = 0;  ///< 0: nothing was told

  void add(double value) { add(Bucket{.least = value, .most = value, .sum = value, .count = 1}); }
  void add(const Bucket& other);
  double mean() const { return sum / count; }
};
using Line = std::vector<Bucket>;

/// A figure that is drawn over time.
struct LineKind {
  const char* title;
  const char* unit;
  const char* limit;  ///< its limit's name in a rank's telemetry, or in the guard's part of it; null: none
  bool is_of_run;     ///< the same on all ranks, told by rank 0
};

/// The figures of a run over time, as its records tell them, in a bounded number of buckets: when there are
/// too many, two become one. Records of one rank come in the order of their time. Used by one thread at a
/// time.
class TimeLines : public Sink {
 public:
  static constexpr std::size_t default_buckets = 1200;
  explicit TimeLines(std::size_t most_buckets = default_buckets) : most_buckets_(most_buckets) {}

  Status write(const Record& record) override;
  Status flush() override { return {}; }

  struct Phase {
    double time = 0;  ///< when it began, seconds since 1970
    std::string name;
  };

  static const std::vector<LineKind>& kinds();
  /// By rank; of a kind of `kinds`.
  const std::map<int, Line>& lines(std::size_t kind) const { return lines_[kind]; }
  double began() const { return began_; }             ///< seconds since 1970
  double bucket_seconds() const { return seconds_; }  ///< the same of all lines
  /// In turn; none where there would be more than can be told apart.
  const std::vector<Phase>& phases() const { return phases_; }

 private:
  void add(std::size_t kind, int rank, double time, double value);
  void add_rate(std::size_t kind, const Record& record, double count);
  void add_phase(const Record& epoch);
  void halve();

  const std::size_t most_buckets_;
  double began_ = 0;
  double seconds_ = 1;
  bool has_begun_ = false, too_many_phases_ = false;
  std::vector<std::map<int, Line>> lines_{kinds().size()};
  struct Count {
    double time = 0, value = 0;
  };
  std::map<std::pair<std::size_t, int>, Count> before_;  ///< of counters, by kind and rank
  std::vector<Phase> phases_;
};

/// Two buckets are one, and so on: at most `most` are left. `factor` gets how many are one.
Line thinned(const Line& line, std::size_t most, std::size_t* factor = nullptr);
/// Bucket by bucket the ranks together.
Line merged(const std::map<int, Line>& lines);

}  // namespace egt
