#include "egt/core/record_text.hpp"

#include <fmt/format.h>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

std::string who(const Json& body) {
  const auto rank = value_at<int>(body, "rank");
  std::string text = rank ? fmt::format("rank {}", *rank) : "a rank";
  if (!text_at(body, "hostname").empty()) text += fmt::format(" on {}", text_at(body, "hostname"));
  return text;
}

std::string what_happened(const Json& loss) {
  const std::string how = text_at(loss, "how");
  const double seconds = value_at<double>(loss, "seconds").value_or(0);
  if (how == to_string(Loss::How::stuck)) return fmt::format("is stuck: no progress for {:.1f} s", seconds);
  if (how == to_string(Loss::How::silent))
    return fmt::format(
        "does not answer for {:.1f} s: its process is stopped, or its host or the network to it is gone",
        seconds);
  if (how == to_string(Loss::How::vanished)) return "vanished: its process ended without a word";
  return "failed";
}

}  // namespace

std::string device_label(const Json& identity, bool name_host) {
  const auto index = value_at<int>(member(identity, "device"), "index");
  return fmt::format("{} {}{}", text_at(identity, "backend") == "cuda" ? "GPU" : "CPU",
                     index.value_or(value_at<int>(identity, "local_rank").value_or(0)),
                     name_host ? fmt::format(" on {}", text_at(identity, "hostname")) : "");
}

std::string device_identity(const Json& identity, bool name_host) {
  const Json& device = member(identity, "device");
  std::string text;
  const auto note = [&](const char* name, const char* key) {
    if (const std::string value = text_at(device, key); !value.empty())
      text += fmt::format(", {} {}", name, value);
  };
  note("UUID", "uuid");
  note("PCI", "pci_bus_id");
  note("serial", "serial");
  const std::string name = text_at(device, "name");
  if (text.empty() && !name.empty()) text = fmt::format(" ({})", name);
  return device_label(identity, name_host) + text;
}

std::string loss_text(const Json& loss) {
  std::string text = fmt::format("{} {}", who(loss), what_happened(loss));
  if (!text_at(loss, "phase").empty()) text += fmt::format(", in {}", text_at(loss, "phase"));
  if (const auto step = value_at<std::int64_t>(loss, "step")) text += fmt::format(", step {}", *step);
  if (!text_at(loss, "text").empty()) text += fmt::format(": {}", text_at(loss, "text"));
  return text;
}

std::string late_stop_text(const Json& stop) {
  std::string text =
      fmt::format("after {} it {} {} for {:.1f} s", text_at(stop, "signal"),
                  value_at<bool>(stop, "waits_for_peers").value_or(false) ? "waited for others in" : "was in",
                  text_at(stop, "phase"), value_at<double>(stop, "seconds").value_or(0));
  if (const auto step = value_at<std::int64_t>(stop, "step")) text += fmt::format(", at step {}", *step);
  return text;
}

std::string restart_text(const Json& restart) {
  const std::string phase = text_at(restart, "phase");
  return fmt::format("{} delayed all ranks for {:.1f} s{}: restart {}, the run continues at step {}",
                     who(restart), value_at<double>(restart, "seconds").value_or(0),
                     phase.empty() ? "" : fmt::format(" in {}", phase),
                     value_at<int>(restart, "number").value_or(1),
                     value_at<std::int64_t>(restart, "resumed_step").value_or(0));
}

std::string finding_text(const Json& finding) {
  return value_at<int>(finding, "rank") ? fmt::format("{}: {}", who(finding), text_at(finding, "text"))
                                        : text_at(finding, "text");
}

}  // namespace egt
