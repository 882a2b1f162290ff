#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "egt/core/record.hpp"

/// Work of a part of the load on a rank; the bodies of progress and end records hold it as JSON.
namespace egt {

/// Kinds of `detectable_error_rate`, up to `files` of `verified_share`. Units: FLOP, iterations of chains,
/// parameter updates, elements of gradient all-reduces, bytes; see vote_operations for those of the vote.
/// `vote_one_unit`: the min over the sub-partitions.
enum class WorkKind { gemm, transcendental, update, all_reduce, memory, copies, files, vote, vote_one_unit };
const char* to_string(WorkKind kind);

/// Work whose results were checked bit for bit; names are those of `verified_work` in the result. A new kind
/// needs a member here and a row of `work_fields`.
struct VerifiedWork {
  double gemm_flops = 0;
  std::uint64_t replays = 0;
  std::uint64_t replica_checks = 0;
  std::uint64_t collective_elements_checked = 0;
  std::uint64_t bytes_patrolled = 0;
  std::uint64_t bytes_file_verified = 0;
  std::uint64_t bytes_exchanged_verified = 0;  ///< received from another device or the host
  std::uint64_t outputs_verified = 0;          ///< of an operation, compared with a known answer
};

/// A member of VerifiedWork, with its name and format in each output.
struct WorkField {
  enum class Unit { count, flop, byte };

  const char* key;  ///< in `verified_work`
  std::variant<double VerifiedWork::*, std::uint64_t VerifiedWork::*> member;
  Unit unit;
  const char* metric;           ///< in metrics.prom, without "egt_"
  const char* help;             ///< its help text there
  const char* console;          ///< text after its amount in the verdict
  int place = 0;                ///< position among the tiles of report.html, from 1; 0: none
  const char* tile = "";        ///< the tile's name
  const char* group = nullptr;  ///< heading above its chart in report.html
  const char* chart = nullptr;  ///< title of the chart of its rate; null: no chart
  bool is_minor = false;        ///< printed in the verdict only if no other work was verified
};

/// In the order of metrics.prom, the console and the charts. The verdict prints replays in its line of
/// checks.
inline constexpr WorkField work_fields[] = {
    {"gemm_flops", &VerifiedWork::gemm_flops, WorkField::Unit::flop, "run_verified_product_operations",
     "Floating-point operations of verified GEMMs.", "of GEMMs", 2, "GEMMs verified", "Compute",
     "Verified GEMMs"},
    {"replays", &VerifiedWork::replays, WorkField::Unit::count, "run_verified_replays",
     "Steps that were repeated and compared bit for bit.", "replays", 1, "Replays", nullptr, nullptr, true},
    {"replica_checks", &VerifiedWork::replica_checks, WorkField::Unit::count, "run_verified_replica_checks",
     "Comparisons of the training state between ranks, or of one rank's two.", "weight consistency checks"},
    {"collective_elements_checked", &VerifiedWork::collective_elements_checked, WorkField::Unit::count,
     "run_verified_collective_elements", "Elements of collectives that were checked.", "collective elements"},
    {"bytes_patrolled", &VerifiedWork::bytes_patrolled, WorkField::Unit::byte, "run_verified_memory_bytes",
     "Bytes of device memory that were read and checked.", "of memory", 4, "Memory verified", "Memory",
     "Verified memory"},
    {"bytes_file_verified", &VerifiedWork::bytes_file_verified, WorkField::Unit::byte,
     "run_verified_file_bytes", "Bytes of files that were read back and checked.", "of files", 5,
     "Files verified"},
    {"bytes_exchanged_verified", &VerifiedWork::bytes_exchanged_verified, WorkField::Unit::byte,
     "run_verified_copy_bytes", "Bytes of copies that were checked.", "exchanged", 6, "Exchange verified",
     "Network", "Verified exchange"},
    {"outputs_verified", &VerifiedWork::outputs_verified, WorkField::Unit::count, "run_verified_outputs",
     "Outputs of single operations that were checked.", "outputs", 3, "Outputs verified"}};
static_assert(sizeof(VerifiedWork) == std::size(work_fields) * sizeof(std::uint64_t),
              "a row for each member");

void add(VerifiedWork& sum, const VerifiedWork& more);
/// True if any work of that kind, or of any kind, was verified.
bool any(const VerifiedWork& work, const WorkField& field);
bool any(const VerifiedWork& work);
/// The verified amount of that kind: "8.25 PFLOP", "97.7 TB", "520".
std::string amount_text(const VerifiedWork& work, const WorkField& field);
/// The fields of `verified_work`.
Json work_to_json(const VerifiedWork& work);
/// Missing fields count as 0.
VerifiedWork work_from_json(const Json& json);

/// Work of one kind and its verified part. All parts measure a kind in the same unit.
struct WorkShare {
  WorkKind kind = WorkKind::gemm;
  std::string precision = {};  ///< of operations that have one; for the vote, the unit
  double done = 0, verified = 0;
};

/// Time that each kind of work so far would take if it ran alone on the device, in seconds. Based on the
/// standalone rates measured at the start of the run. std::nullopt: no such work, or no rate.
struct LoadFigures {
  std::optional<double> extreme;      ///< chains of sine and exponential
  std::optional<double> products;     ///< GEMMs, each precision at its own measured rate
  std::optional<double> memory;       ///< bytes verified and rewritten
  std::optional<double> collective;   ///< bytes of gradients and known answers on the links
  std::optional<double> files;        ///< bytes written and read
  std::optional<double> host_copies;  ///< bytes in each direction between the device and its host
  std::optional<double> peer_copies;  ///< bytes from a neighbour's device
  Json alone;                         ///< an object: the rates, by their names in the entry `load`
  Json mix;                           ///< an object: composition of the load; null: another part reports it
};

/// A time of LoadFigures, and the name of its share in the entry `load`.
struct LoadField {
  const char* share;
  std::optional<double> LoadFigures::*seconds;
};
inline constexpr LoadField load_fields[] = {{"share_extreme", &LoadFigures::extreme},
                                            {"share_products", &LoadFigures::products},
                                            {"share_memory", &LoadFigures::memory},
                                            {"share_collective", &LoadFigures::collective},
                                            {"share_files", &LoadFigures::files},
                                            {"share_host_copies", &LoadFigures::host_copies},
                                            {"share_peer_copies", &LoadFigures::peer_copies}};

/// Adds the load of another part of the same rank.
void add(LoadFigures& sum, const LoadFigures& more);

/// One entry of `results[]`: work of a part on this rank so far.
struct PartReport {
  std::string name;           ///< "train", "memory", ..
  std::string description;    ///< one line for people
  bool success = true;        ///< all planned work was done without a fault
  std::string failure;        ///< reason otherwise, one line; a fault has its own record
  bool of_all_ranks = false;  ///< covers the whole run; `rank` is then null in the result
  Json figures;               ///< an object; names include their unit, null: not measured
  VerifiedWork work;
  std::vector<WorkShare> shares;  ///< of the part's work, without work that a restart discards
  LoadFigures load;
};
/// All but `load`, which the session reports as a separate entry.
Json part_to_json(const PartReport& part);

}  // namespace egt
