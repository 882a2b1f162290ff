#include "judge/xid.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace egt {
namespace {

struct Entry {
  unsigned xid;
  XidMeaning meaning;
};

constexpr XidKind hardware = XidKind::hardware, unclear = XidKind::unclear, program = XidKind::program,
                  application = XidKind::application;

constexpr Entry catalog[] = {
    {8, {program, "GPU stopped processing", Action::check_node}},
    {11, {program, "invalid command stream", Action::check_node}},
    {13, {program, "graphics engine exception", Action::check_node}},
    {31, {program, "memory page fault", Action::check_node}},
    {32, {unclear, "invalid or corrupted command stream", Action::check_node}},
    {38, {unclear, "driver firmware error", Action::check_node}},
    {43, {program, "GPU stopped processing: a program's fault", Action::check_node}},
    {45, {application, "clean-up behind an earlier error or an ended program"}},
    {46, {unclear, "GPU stopped processing", Action::reset_gpu}},
    {48, {hardware, "uncorrectable memory error (ECC)", Action::reset_gpu}},
    {54, {hardware, "auxiliary power is not connected", Action::check_power}},
    {61, {unclear, "internal micro-controller breakpoint", Action::check_node}},
    {62, {hardware, "internal micro-controller halt", Action::reset_gpu}},
    {63, {hardware, "a row of memory is to be remapped", Action::reset_gpu}},
    {64, {hardware, "a row of memory could not be remapped", Action::replace_gpu}},
    {68, {application, "video decoder exception"}},
    {74, {hardware, "NVLink error", Action::reseat}},
    {79, {hardware, "GPU has fallen off the bus", Action::reboot_node}},
    {92, {unclear, "high rate of corrected memory errors (ECC)", Action::run_longer}},
    {94, {hardware, "contained uncorrectable memory error", Action::reset_gpu}},
    {95, {hardware, "uncontained uncorrectable memory error", Action::reset_gpu}},
    {106, {application, "test message of the system management bus"}},
    {107, {application, "test message of the system management bus"}},
    {108, {application, "address translation failed at the other end of an NVLink"}},
    {109, {unclear, "context switch timeout", Action::reset_gpu}},
    {110, {unclear, "security fault", Action::reset_gpu}},
    {119, {unclear, "GPU system processor does not answer", Action::reset_gpu}},
    {120, {unclear, "GPU system processor error", Action::reset_gpu}},
    {121, {unclear, "chip-to-chip link error", Action::reset_gpu}},
    {136, {hardware, "NVLink could not be trained", Action::reseat}},
    {137, {application, "NVLink access without a right to it"}},
    {140, {hardware, "uncorrectable memory error that was not contained", Action::reset_gpu}},
    {143, {hardware, "GPU could not be initialized", Action::reset_gpu}},
    {144, {unclear, "NVLink error (SAW)", Action::reseat}},
    {145, {unclear, "NVLink error (RLW)", Action::reseat}},
    {146, {unclear, "NVLink error (TLW)", Action::reseat}},
    {147, {unclear, "NVLink error (TREX)", Action::reseat}},
    {148, {unclear, "NVLink error (NVLPW_CTRL)", Action::reseat}},
    {149, {unclear, "NVLink error (NETIR)", Action::reseat}},
    {150, {unclear, "NVLink error (MSE)", Action::reseat}},
    {154, {application, "recovery action changed: the echo of another Xid"}},
    {156, {hardware, "a part of the chip is to be retired", Action::reset_gpu}},
    {157, {hardware, "a part of the chip could not be retired", Action::replace_gpu}},
    {158, {hardware, "fatal timeout inside the GPU", Action::reset_gpu}},
    {160, {hardware, "a memory channel is to be retired", Action::reset_gpu}},
    {161, {hardware, "a memory channel could not be retired", Action::replace_gpu}},
    {167, {hardware, "fatal PCIe timeout", Action::reboot_node}},
    {168, {hardware, "the GPU has less memory than it was built with", Action::reset_gpu}},
    {171, {hardware, "uncorrectable error in device memory", Action::reset_gpu}},
    {172, {hardware, "uncorrectable error in on-chip memory", Action::reset_gpu}},
};

constexpr unsigned first_with_severity = 144, last_with_severity = 150;

bool equal_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char one, char other) { return (one | 0x20) == (other | 0x20); });
}

/// Returns whether "Fatal" is a word of a detail like "NETIR_LINK_EVT  Fatal   XC0 i0 Link 02 (0x..)".
bool is_fatal(std::string_view detail) {
  constexpr std::string_view separators = " ,";
  while (!detail.empty()) {
    const std::size_t end = std::min(detail.find_first_of(separators), detail.size());
    if (equal_letters(detail.substr(0, end), "fatal")) return true;
    detail.remove_prefix(std::min(end + 1, detail.size()));
  }
  return false;
}

}  // namespace

XidMeaning xid_meaning(unsigned xid, std::string_view detail) {
  const auto* found =
      std::find_if(std::begin(catalog), std::end(catalog), [&](const Entry& e) { return e.xid == xid; });
  XidMeaning meaning = found == std::end(catalog) ? XidMeaning{} : found->meaning;
  if (xid >= first_with_severity && xid <= last_with_severity && is_fatal(detail))
    meaning.kind = XidKind::hardware;
  return meaning;
}

std::string xid_name(unsigned xid) {
  const XidMeaning meaning = xid_meaning(xid);
  return *meaning.text == '\0' ? fmt::format("Xid {}", xid) : fmt::format("Xid {}: {}", xid, meaning.text);
}

}  // namespace egt
