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
          {"serial", text_or_null(body.limits.serial)},
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
          {"inventory", body.inventory},
          {"program_version", program_version()},
          {"journal_schema", journal_schema},
          {"injected", !member(body.options, "inject").empty()}};
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

Json error_to_json(const Status& status) {
  if (status.ok()) return nullptr;
  return {{"code", to_string(status.code())}, {"what", status.what()}, {"where", status.where()}};
}

}  // namespace egt
