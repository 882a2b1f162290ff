#include "session/health/xid_catalog.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace egt {
namespace {

struct Entry {
  unsigned xid;
  XidMeaning meaning;
};

constexpr XidKind hardware = XidKind::hardware, unclear = XidKind::unclear, program = XidKind::program,
                  application = XidKind::application;

constexpr Entry catalog[] = {
    {8, {program, "GPU stopped processing"}},
    {11, {program, "invalid command stream"}},
    {13, {program, "graphics engine exception"}},
    {31, {program, "memory page fault"}},
    {32, {unclear, "invalid or corrupted command stream"}},
    {38, {unclear, "driver firmware error"}},
    {43, {program, "GPU stopped processing: a program's fault"}},
    {45, {application, "clean-up behind an earlier error or an ended program"}},
    {46, {unclear, "GPU stopped processing"}},
    {48, {hardware, "uncorrectable memory error (ECC)"}},
    {54, {hardware, "auxiliary power is not connected"}},
    {61, {unclear, "internal micro-controller breakpoint"}},
    {62, {hardware, "internal micro-controller halt"}},
    {63, {hardware, "a row of memory is to be remapped"}},
    {64, {hardware, "a row of memory could not be remapped"}},
    {68, {application, "video decoder exception"}},
    {74, {hardware, "NVLink error"}},
    {79, {hardware, "GPU has fallen off the bus"}},
    {92, {unclear, "high rate of corrected memory errors (ECC)"}},
    {94, {hardware, "contained uncorrectable memory error"}},
    {95, {hardware, "uncontained uncorrectable memory error"}},
    {106, {application, "test message of the system management bus"}},
    {107, {application, "test message of the system management bus"}},
    {108, {application, "address translation failed at the other end of an NVLink"}},
    {109, {unclear, "context switch timeout"}},
    {110, {unclear, "security fault"}},
    {119, {unclear, "GPU system processor does not answer"}},
    {120, {unclear, "GPU system processor error"}},
    {121, {unclear, "chip-to-chip link error"}},
    {136, {hardware, "NVLink could not be trained"}},
    {137, {application, "NVLink access without a right to it"}},
    {140, {hardware, "uncorrectable memory error that was not contained"}},
    {143, {hardware, "GPU could not be initialized"}},
    {144, {unclear, "NVLink error (SAW)"}},
    {145, {unclear, "NVLink error (RLW)"}},
    {146, {unclear, "NVLink error (TLW)"}},
    {147, {unclear, "NVLink error (TREX)"}},
    {148, {unclear, "NVLink error (NVLPW_CTRL)"}},
    {149, {unclear, "NVLink error (NETIR)"}},
    {150, {unclear, "NVLink error (MSE)"}},
    {154, {application, "recovery action changed: the echo of another Xid"}},
    {156, {hardware, "a part of the chip is to be retired"}},
    {157, {hardware, "a part of the chip could not be retired"}},
    {158, {hardware, "fatal timeout inside the GPU"}},
    {160, {hardware, "a memory channel is to be retired"}},
    {161, {hardware, "a memory channel could not be retired"}},
    {167, {hardware, "fatal PCIe timeout"}},
    {168, {hardware, "the GPU has less memory than it was built with"}},
    {171, {hardware, "uncorrectable error in device memory"}},
    {172, {hardware, "uncorrectable error in on-chip memory"}},
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

}  // namespace egt
