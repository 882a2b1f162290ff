#pragma once

#include <string_view>

namespace egt {

/// What an Xid says about the device.
enum class XidKind {
  hardware,  ///< memory, link, bus or chip did wrong
  unclear,   ///< hardware, driver or program: needs a look
  program,   ///< a program's mistake: of this process, whose binary is right on other GPUs, it needs a look
  application,  ///< the echo of another Xid, or harmless: no evidence by itself
};

struct XidMeaning {
  XidKind kind = XidKind::unclear;
  const char* text = "";  ///< for people: what the driver saw; empty: not in the table
};

/// By NVIDIA's "Xid Errors" and its catalog for Ampere and newer (docs.nvidia.com/deploy/xid-errors). Numbers
/// whose first action there is to reset or replace the device, or that report memory it could not correct,
/// are `hardware`, but those of its firmware are `unclear`; "restart the application" is `application` where
/// programs can cause it. What is not in the table is `unclear`.
/// `detail`: the rest of the kernel log's line. For the NVLink Xids 144 to 150 its severity word decides:
/// "Fatal" is `hardware`; "Nonfatal", or no word, is `unclear`.
XidMeaning xid_meaning(unsigned xid, std::string_view detail = {});

}  // namespace egt
