#pragma once

#include <string>
#include <string_view>

#include "judge/action.hpp"

/// The driver's error numbers, based on NVIDIA's "Xid Errors" and its catalog for Ampere and newer
/// (docs.nvidia.com/deploy/xid-errors).
namespace egt {

/// Meaning of an Xid for the device.
enum class XidKind {
  hardware,     ///< memory, link, bus or chip failed
  unclear,      ///< hardware, driver or program; needs investigation
  program,      ///< a program's error; in this process, which works on other GPUs, it needs investigation
  application,  ///< follows another Xid, or is harmless; no evidence on its own
};

struct XidMeaning {
  XidKind kind = XidKind::unclear;
  const char* text = "";  ///< what the driver detected; empty: not in the table
  Action action = Action::check_node;
};

/// Xids whose first action in the catalog is to reset or replace the device are `hardware`, as are those for
/// uncorrectable memory. Xids of its firmware are `unclear`. "restart the application" is `application` if
/// programs can cause it. Xids that are not in the table are `unclear`.
/// `detail`: the rest of the kernel log's line. For the NVLink Xids 144 to 150 its severity word decides:
/// "Fatal" is `hardware`; "Nonfatal", or no word, is `unclear`.
XidMeaning xid_meaning(unsigned xid, std::string_view detail = {});

/// "Xid 79: GPU has fallen off the bus".
std::string xid_name(unsigned xid);

}  // namespace egt
