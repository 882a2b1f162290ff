#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/device/device.hpp"
#include "egt/workload/workload.hpp"
#include "workload/common/operand_answers.hpp"
#include "workload/common/operation_pipeline.hpp"
#include "workload/common/standalone_rate.hpp"
#include "workload/memory/repeated_gemm.hpp"

namespace egt {

/// Totals so far. Times are device times.
struct GemmFigures {
  std::map<Precision, double> flops;  ///< FLOP of correct GEMMs, all repetitions included
  std::map<Precision, double> enqueued_flops, judged_flops;  ///< also of wrong GEMMs
  std::map<std::size_t, double> band_flops;                  ///< of `flops`, by index in operand_bands()
  double milliseconds = 0;
  std::uint64_t verified = 0;       ///< GEMMs with all rows compared, or some recomputed
  std::uint64_t disagreements = 0;  ///< wrong GEMMs
};

/// Memory-resident GEMMs: large GEMMs whose operands are blocks of the tested memory, on a separate stream.
/// They alternate block by block between training's precision and the 8-bit precisions of the device. The two
/// differ in power, and a device throttled by one would draw too little in the other. The matrix pairs of a
/// block are multiplied in turn, several times. Each result is digested and must be equal in every repetition
/// and on other ranks (see answers). The values of the operands are one OperandBand after the other. In exact
/// bands, every element of each first result is verified, so errors common to all repetitions and ranks are
/// detected. In the others, Device::verify_gemm recomputes random rows of one GEMM per block. Errors become
/// Fault records. One thread at a time; only `figures` and `answers` are thread-safe.
class GemmLane {
 public:
  /// Enough for the device always to have work while the host judges other operations.
  static constexpr std::size_t in_flight = 16;

  /// Parameters of the next operands.
  struct Plan {
    Precision precision = Precision::fp32;
    std::int64_t rows = 0;  ///< of the square result
    std::uint64_t name = 0, seed = 0;
    std::size_t band = 0;  ///< index in operand_bands()

    /// Pattern of the operands.
    std::uint32_t parameter() const;
  };

  static constexpr std::uint64_t results = 2;  ///< of two alternating blocks
  /// Device memory in bytes for the results of GEMMs with up to `rows` rows.
  static constexpr std::uint64_t bytes_for(std::int64_t rows) {
    const auto n = static_cast<std::uint64_t>(rows);
    return results * n * n * sizeof(float);
  }

  /// `rates`: standalone, for one or more precisions, all that may be used. `pipeline`: has depth
  /// `in_flight`.
  static Result<std::unique_ptr<GemmLane>> create(Environment& environment, ProductRates rates,
                                                  std::unique_ptr<OperationPipeline> pipeline,
                                                  std::int64_t max_rows);

  /// Number of blocks to use as operands, out of `blocks`. If GEMMs are not the leading load, a few blocks
  /// fill the gaps of other work; a small fill has none to spare.
  std::size_t wanted(std::size_t blocks) const;
  std::size_t held() const { return operands_.size(); }
  bool holds(std::size_t block) const;
  /// For a block of `bytes` bytes, in training step `step`. std::nullopt if two matrices do not fit.
  std::optional<Plan> plan(std::uint64_t bytes, std::int64_t step) const;
  /// Uses the block as operands until all its GEMMs are judged. `filled_by`: stream that filled it with
  /// `operands` of the plan's seed and parameter. `place`: location as text; `offset`: bytes in the tested
  /// memory.
  Status begin(std::size_t block, WordsView words, std::uint64_t offset, std::string place, const Plan& plan,
               Stream& filled_by);
  /// Enqueues GEMMs while that does not block and LoadControl::products_duty permits. `step`: for the
  /// records; `blocks`: number of blocks in the memory test.
  Status feed(std::int64_t step, std::size_t blocks, const std::stop_token& stop);
  /// Waits for one more GEMM.
  Status judge_one(const std::stop_token& stop) {
    return pipeline_->judge_first(pipeline_->judged() + 1, stop);
  }
  Status drain(double seconds, const std::stop_token& stop = {}) { return pipeline_->drain(seconds, stop); }
  /// Removes a freed block; nothing may be enqueued.
  void drop(std::size_t block);

  /// Bands that are not used here, by index in operand_bands(): this library's GEMMs are not exact with them,
  /// or slow.
  const std::set<std::size_t>& left_out() const { return left_out_; }
  /// Device time since the last call, in ms.
  double take_worked_ms() { return std::exchange(worked_ms_, 0); }
  GemmFigures figures() const;
  /// Results of the last multiplied blocks, at most max_operand_answers.
  std::vector<OperandAnswer> answers() const;

 private:
  struct Operands {
    std::size_t block = 0;
    WordsView words;
    std::uint64_t offset = 0;
    std::string place;
    Plan plan;
    std::unique_ptr<Event> filled;            ///< the words are ready for the GEMMs
    std::uint64_t enqueued = 0, judged = 0;   ///< number of GEMMs
    std::vector<Digest> digests;              ///< first digest of each pair's GEMM
    std::set<std::size_t> wrong_pairs = {};   ///< as far as this rank detected
    std::set<std::size_t> struck_pairs = {};  ///< with an injected fault
    std::size_t struck_pair = 0;              ///< with one in every repetition
    Flip struck = {.count = 0};

    static constexpr std::uint64_t rounds = 8;
    std::uint64_t planned() const { return rounds * digests.size(); }
    /// True if the GEMMs of both operands alternate.
    bool are_beside(const Operands& others) const { return plan.name / 2 == others.plan.name / 2; }
    bool are_behind(const Operands& others) const {
      return enqueued * others.planned() < others.enqueued * planned();
    }
  };
  GemmLane(Environment& environment, ProductRates rates, std::unique_ptr<OperationPipeline> pipeline,
           std::int64_t max_rows);
  Status prepare();
  Status try_bands();
  bool may_multiply(std::size_t blocks);
  void count_work(double device_ms);
  std::int64_t rows_in(std::uint64_t bytes, Precision precision) const;
  /// Operands of the next GEMM; null: none.
  Operands* next();
  /// Operands of a held block. Names are not unique if a run returns to an earlier step.
  Operands& operands_of(std::size_t block);
  static BlockGemm block_gemm(const Operands& operands, std::size_t pair);
  Gemm product_of(const Operands& operands, std::size_t pair) const;
  Status multiply(Operands& operands, const std::stop_token& stop);
  Flip due_fault(Operands& operands, std::size_t pair, const Gemm& gemm);
  Status verify(const Operands& operands, std::size_t pair, const Gemm& gemm, const std::stop_token& stop);
  void judge(Operands& operands, std::size_t pair, const Digest& digest, double device_ms);
  void judge_rows(Operands& operands, std::size_t pair, std::int64_t first_row, const Gemm& rows,
                  const GemmMismatches& found);
  void keep_answer(const Operands& operands);
  std::string where(const Operands& operands) const;
  static std::uint64_t offset_of(const Operands& operands, const Gemm& gemm);
  void emit(const Fault& fault, const Operands& operands, std::size_t pair);
  Status repeat_faulty(const std::stop_token& stop);

  Environment& environment_;
  Device& device_;
  const ProductRates rates_;
  std::vector<Precision> narrow_;  ///< 8-bit precisions of the device
  const std::int64_t max_rows_;
  Buffer results_;
  std::set<std::size_t> left_out_;
  std::deque<Operands> operands_;  ///< the first two are multiplied while the next are prepared
  std::uint64_t period_ = 0, begun_in_period_ = 0;  ///< in periods of period_steps steps
  std::int64_t step_ = -1;
  Flip lasting_fault_ = {.count = 0};  ///< injected into a GEMM of each following block
  double worked_ms_ = 0;
  /// In ms: device time that the duty cycle allows, and duration of the last GEMM (initially high).
  double credit_ms_ = 0, product_ms_ = 1e3;
  Clock::time_point credited_ = Clock::now();
  mutable std::mutex mutex_;
  GemmFigures figures_;
  std::deque<OperandAnswer> answers_;
  /// A faulty GEMM that has not been repeated yet.
  struct Faulty {
    std::size_t block = 0, pair = 0;
    std::uint64_t name = 0;  ///< of the operands
    std::string file;        ///< Fault::reproducer
  };
  std::vector<Faulty> faulty_;
  ReproducerFiles reproducers_{environment_};
  std::unique_ptr<OperationPipeline> pipeline_;  ///< last: its stream finishes before the memory is freed
};

}  // namespace egt
