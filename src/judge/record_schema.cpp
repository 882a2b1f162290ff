#include "judge/record_schema.hpp"

#include "egt/core/json_access.hpp"
#include "egt/core/types.hpp"
#include "judge/version.hpp"

namespace egt {
namespace {

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json device_to_json(const StartBody& body) {
  const DeviceInfo& info = body.device;
  return {{"index", info.index},
          {"name", info.name},
          {"uuid", text_or_null(info.uuid)},
          {"pci_bus_id", text_or_null(info.pci_bus_id)},
          {"memory_total_bytes", body.memory.total_bytes},
          {"memory_free_bytes", body.memory.free_bytes},
          {"compute_capability", text_or_null(info.compute_capability)},
          {"power_limit_w", or_null(body.limits.power_limit_w)},
          {"link", text_or_null(body.limits.link)}};
}

Json identity_to_json(const StartBody& body) {
  return {{"rank", body.place.rank},
          {"local_rank", body.place.local_rank},
          {"hostname", body.place.hostname},
          {"slurm_node", text_or_null(body.slurm_node)},
          {"backend", body.device.backend},
          {"device", device_to_json(body)},
          {"numa_node", body.device.numa_node < 0 ? Json() : Json(body.device.numa_node)},
          {"batch", body.batch}};
}

}  // namespace

Json to_json(const StartBody& body) {
  Json precisions = Json::array();
  for (const Precision precision : body.precisions) precisions.push_back(to_string(precision));
  return {{"identity", identity_to_json(body)},
          {"system", body.system.is_null() ? Json::object() : body.system},
          {"command", body.command},
          {"arguments", body.arguments},
          {"options", body.options.is_null() ? Json::object() : body.options},
          {"host_defaults", body.host_defaults},
          {"size", body.place.size},
          {"requested_duration_seconds", or_null(body.duration_seconds)},
          {"requested_steps", or_null(body.steps)},
          {"layers", body.layers},
          {"global_batch", body.global_batch},
          {"precisions", precisions},
          {"no_telemetry", text_or_null(body.no_telemetry)},
          {"run_id", text_or_null(body.run_id)},
          {"part", body.part},
          {"process", body.process},
          {"program_version", program_version()},
          {"journal_schema", journal_schema},
          {"injected", !member(body.options, "inject").empty()}};
}

const char* to_string(WorkKind kind) {
  constexpr const char* names[] = {"gemm",   "transcendental", "update", "all_reduce",
                                   "memory", "copies",         "files"};
  return names[static_cast<int>(kind)];
}

namespace {

Json shares_to_json(const std::vector<WorkShare>& shares) {
  Json all = Json::array();
  for (const WorkShare& one : shares)
    all.push_back({{"kind", to_string(one.kind)},
                   {"precision", text_or_null(one.precision)},
                   {"done", one.done},
                   {"verified", one.verified}});
  return all;
}

}  // namespace

Json part_to_json(const PartReport& part) {
  return {{"name", part.name},
          {"description", part.description},
          {"success", part.success},
          {"failure", text_or_null(part.failure)},
          {"of_all_ranks", part.of_all_ranks},
          {"figures", part.figures.is_null() ? Json::object() : part.figures},
          {"work", work_to_json(part.work)},
          {"shares", shares_to_json(part.shares)}};
}

Json work_to_json(const VerifiedWork& work) {
  return {{"gemm_flops", work.gemm_flops},
          {"replays", work.replays},
          {"replica_checks", work.replica_checks},
          {"collective_elements_checked", work.collective_elements_checked},
          {"bytes_patrolled", work.bytes_patrolled},
          {"bytes_file_verified", work.bytes_file_verified},
          {"bytes_exchanged_verified", work.bytes_exchanged_verified},
          {"outputs_verified", work.outputs_verified}};
}

VerifiedWork work_from_json(const Json& json) {
  const auto count = [&](const char* key) { return value_at<std::uint64_t>(json, key).value_or(0); };
  return {.gemm_flops = value_at<double>(json, "gemm_flops").value_or(0),
          .replays = count("replays"),
          .replica_checks = count("replica_checks"),
          .collective_elements_checked = count("collective_elements_checked"),
          .bytes_patrolled = count("bytes_patrolled"),
          .bytes_file_verified = count("bytes_file_verified"),
          .bytes_exchanged_verified = count("bytes_exchanged_verified"),
          .outputs_verified = count("outputs_verified")};
}

VerifiedWork work_in(const Json& body) {
  VerifiedWork sum;
  for (const Json& part : member(body, "parts")) add(sum, work_from_json(member(part, "work")));
  return sum;
}

const Json& figures_in(const Json& body, std::string_view name) {
  for (const Json& part : member(body, "parts"))
    if (text_at(part, "name") == name) return member(part, "figures");
  static const Json nothing;
  return nothing;
}

void add(VerifiedWork& sum, const VerifiedWork& more) {
  sum.gemm_flops += more.gemm_flops;
  sum.replays += more.replays;
  sum.replica_checks += more.replica_checks;
  sum.collective_elements_checked += more.collective_elements_checked;
  sum.bytes_patrolled += more.bytes_patrolled;
  sum.bytes_file_verified += more.bytes_file_verified;
  sum.bytes_exchanged_verified += more.bytes_exchanged_verified;
  sum.outputs_verified += more.outputs_verified;
}

bool any(const VerifiedWork& work) {
  return work.gemm_flops > 0 || work.replays > 0 || work.replica_checks > 0 ||
         work.collective_elements_checked > 0 || work.bytes_patrolled > 0 || work.bytes_file_verified > 0 ||
         work.bytes_exchanged_verified > 0 || work.outputs_verified > 0;
}

Json error_to_json(const Status& status) {
  if (status.ok()) return nullptr;
  return {{"code", to_string(status.code())}, {"what", status.what()}, {"where", status.where()}};
}

}  // namespace egt
