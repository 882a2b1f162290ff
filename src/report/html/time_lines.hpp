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

/// Min, max and mean of a metric in a time interval. A short peak stays visible in a long interval.
struct Bucket {
  double least = 0;
  double most = 0;
  double sum = 0;
  std::uint32_t count = 0;  ///< 0: no samples

  void add(double value) { add(Bucket{.least = value, .most = value, .sum = value, .count = 1}); }
  void add(const Bucket& other);
  double mean() const { return sum / count; }
};
using Line = std::vector<Bucket>;

/// A metric that is plotted over time.
struct LineKind {
  const char* group;  ///< heading above its chart
  const char* title;
  const char* unit;
  const char* limit;  ///< name of its limit in the telemetry or in its limiter part; null: none
  bool is_of_run;     ///< the same on all ranks, reported by rank 0
};

/// Time series of a run, from its records, in a bounded number of buckets. Two buckets are merged into one
/// whenever there are too many. Records of one rank must arrive in time order. Used by one thread at a time.
class TimeLines : public Sink {
 public:
  static constexpr std::size_t default_buckets = 1200;
  explicit TimeLines(std::size_t max_buckets = default_buckets) : max_buckets_(max_buckets) {}

  Status write(const Record& record) override;
  Status flush() override { return {}; }

  struct Phase {
    double time = 0;  ///< start, in seconds since 1970
    std::string name;
  };

  static const std::vector<LineKind>& kinds();
  /// The series of one kind of `kinds`, by rank.
  const std::map<int, Line>& lines(std::size_t kind) const { return lines_[kind]; }
  double began() const { return began_; }             ///< in seconds since 1970
  double bucket_seconds() const { return seconds_; }  ///< the same for all series
  /// In time order; empty if there are too many to distinguish.
  const std::vector<Phase>& phases() const { return phases_; }

 private:
  void add(std::size_t kind, int rank, double time, double value);
  void add_rate(std::size_t kind, const Record& record, double count);
  void add_phase(const Record& epoch);
  void halve();

  const std::size_t max_buckets_;
  double began_ = 0;
  double seconds_ = 1;
  bool has_begun_ = false, too_many_phases_ = false;
  std::vector<std::map<int, Line>> lines_{kinds().size()};
  struct Count {
    double time = 0, value = 0;
  };
  std::map<std::pair<std::size_t, int>, Count> before_;  ///< counters by kind and rank
  std::vector<Phase> phases_;
};

/// Merges pairs of buckets until at most `most` remain. `factor` returns the number of buckets merged into
/// one.
Line thinned(const Line& line, std::size_t most, std::size_t* factor = nullptr);
/// Merges the ranks, bucket by bucket.
Line merged(const std::map<int, Line>& lines);

/// Data for the page's script, by group: the min, mean and max of each metric, its series from point `from`
/// on, and the limits that `result` has. A metric that is constant, or the same as an earlier one, has no
/// series. With `min_ranks_of_median` ranks or more the first series is their median between their min and
/// max, and "own_lines" has the ranks that the page shows next to it.
Json time_lines_json(const TimeLines& lines, const Json& result, std::size_t from = 0);

}  // namespace egt
