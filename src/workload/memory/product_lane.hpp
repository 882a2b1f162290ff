#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/device/device.hpp"
#include "egt/workload/workload.hpp"
#include "workload/common/alone_rate.hpp"
#include "workload/common/operand_answers.hpp"
#include "workload/common/operation_pipeline.hpp"

namespace egt {

/// What the lane did so far. Times are device time.
struct ProductFigures {
  std::map<Precision, double> flops;  ///< of products that were right, each repetition counted
  std::map<Precision, double> enqueued_flops;
  double milliseconds = 0;
  std::uint64_t verified = 0;       ///< products of which some rows were computed again
  std::uint64_t disagreements = 0;  ///< products that were wrong
};

/// Large products whose operands are blocks of the patrolled memory, on a stream of their own, in the
/// precision of training and, in turn with it, in those of 8 bits that the device has: a product of one
/// block, then one of the next, since the two draw unlike power, and a device that slowed down for the one
/// would draw too little in the other. The pairs of matrices of a block are multiplied in turn, several
/// times. Every product is digested: a repetition must give the same; so must other ranks (see answers). Of
/// one product per block random rows are computed again by Device::verify_gemm: that finds what is wrong at
/// every repetition and on every rank. What is wrong becomes a Fault record. One thread at a time; `figures`
/// and `answers` are safe from any other.
class ProductLane {
 public:
  /// So many that the device always has one to begin while the host judges others.
  static constexpr std::size_t in_flight = 16;

  /// Operands as they are taken next.
  struct Plan {
    Precision precision = Precision::fp32;
    std::int64_t rows = 0;  ///< of the result, which is square
    std::uint64_t name = 0, seed = 0;
  };

  static constexpr std::uint64_t results = 2;  ///< of two blocks in turn
  /// What the lane takes of the device's memory for products of so many rows.
  static constexpr std::uint64_t bytes_for(std::int64_t rows) {
    const auto n = static_cast<std::uint64_t>(rows);
    return results * n * n * sizeof(float);
  }

  /// `rates`: alone, in all precisions that may come; at least one.
  /// `pipeline`: of `in_flight`.
  static Result<std::unique_ptr<ProductLane>> create(Environment& environment, ProductRates rates,
                                                     std::unique_ptr<OperationPipeline> pipeline,
                                                     std::int64_t most_rows);

  /// How many of so many blocks are to be operands. Where products do not lead, those of a few blocks fill
  /// the gaps that others leave; a small fill has none to spare.
  std::size_t wanted(std::size_t blocks) const;
  std::size_t held() const { return operands_.size(); }
  bool holds(std::size_t block) const;
  /// Of a block of so many bytes, in training step `step`. None: it has no two matrices.
  std::optional<Plan> plan(std::uint64_t bytes, std::int64_t step) const;
  /// The block, which `filled_by` has filled with `finite` numbers of the plan's seed, becomes operands until
  /// all its products are judged. `place`: of the block, in words; `offset`: in the patrolled memory, bytes.
  Status begin(std::size_t block, WordsView words, std::uint64_t offset, std::string place, const Plan& plan,
               Stream& filled_by);
  /// Enqueues products as long as that is no wait, and LoadControl::products_duty is kept. `step`: for the
  /// records; `blocks`: that the patrol has.
  Status feed(std::int64_t step, std::size_t blocks, const std::stop_token& stop);
  /// Waits for one more product.
  Status judge_one(const std::stop_token& stop) {
    return pipeline_->judge_first(pipeline_->judged() + 1, stop);
  }
  Status drain(double seconds, const std::stop_token& stop = {}) { return pipeline_->drain(seconds, stop); }
  /// The block goes; nothing is enqueued.
  void drop(std::size_t block);

  /// Device time since the last call, ms.
  double take_worked_ms() { return std::exchange(worked_ms_, 0); }
  ProductFigures figures() const;
  /// Of the blocks that were multiplied last, most_operand_answers at most.
  std::vector<OperandAnswer> answers() const;

 private:
  struct Operands {
    std::size_t block = 0;
    WordsView words;
    std::uint64_t offset = 0;
    std::string place;
    Plan plan;
    std::unique_ptr<Event> filled;           ///< the words are as the products shall find them
    std::uint64_t enqueued = 0, judged = 0;  ///< products
    std::vector<Digest> digests;             ///< of each pair's product, as it was first
    bool right = true;                       ///< so far, by what this rank found itself

    static constexpr std::uint64_t rounds = 8;
    std::uint64_t planned() const { return rounds * digests.size(); }
    /// Are they multiplied in turn with these?
    bool are_beside(const Operands& others) const { return plan.name / 2 == others.plan.name / 2; }
    bool are_behind(const Operands& others) const {
      return enqueued * others.planned() < others.enqueued * planned();
    }
  };
  ProductLane(Environment& environment, ProductRates rates, std::unique_ptr<OperationPipeline> pipeline,
              std::int64_t most_rows);
  Status prepare();
  bool may_multiply(std::size_t blocks);
  void count_work(double device_ms);
  std::int64_t rows_in(std::uint64_t bytes, Precision precision) const;
  /// Whose product is enqueued next; null: nobody's.
  Operands* next();
  /// Those of a block that is held. Names come again where a run goes back to a step before.
  Operands& operands_of(std::size_t block);
  Gemm product_of(const Operands& operands, std::size_t pair) const;
  Status multiply(Operands& operands, const std::stop_token& stop);
  Status verify(const Operands& operands, const Gemm& gemm, const std::stop_token& stop);
  void judge(Operands& operands, std::size_t pair, const Digest& digest, double device_ms);
  void judge_rows(Operands& operands, std::int64_t first_row, const Gemm& rows, const GemmMismatches& found);
  void keep_answer(const Operands& operands);
  std::string where(const Operands& operands) const;
  static std::uint64_t offset_of(const Operands& operands, const Gemm& gemm);
  void tell(const char* detector, std::uint64_t offset, const Evidence& evidence, std::string where);

  Environment& environment_;
  Device& device_;
  const ProductRates rates_;
  std::vector<Precision> narrow_;  ///< of 8 bits, those that the device has
  const std::int64_t most_rows_;
  Buffer results_;
  std::deque<Operands> operands_;  ///< the first two are multiplied, the next are made ready meanwhile
  std::uint64_t period_ = 0, begun_in_period_ = 0;  ///< of steps
  std::int64_t step_ = -1;
  double worked_ms_ = 0;
  /// Device time that products may still have by their duty, and what the last one took: at first, much.
  double credit_ms_ = 0, product_ms_ = 1e3;
  Clock::time_point credited_ = Clock::now();
  mutable std::mutex mutex_;
  ProductFigures figures_;
  std::deque<OperandAnswer> answers_;
  std::unique_ptr<OperationPipeline> pipeline_;  ///< last: its stream ends before the memory goes
};

}  // namespace egt
