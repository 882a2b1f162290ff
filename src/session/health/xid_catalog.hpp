#pragma once

namespace egt {

/// What an Xid says about the device.
enum class XidKind {
  hardware,     ///< memory, link, bus or chip did wrong
  unclear,      ///< hardware, driver or program: needs a look
  application,  ///< a program's mistake, or the echo of another Xid: no evidence by itself
};

struct XidMeaning {
  XidKind kind = XidKind::unclear;
  const char* text = "";  ///< for people: what the driver saw; empty: not in the table
};

/// By NVIDIA's "Xid Errors" and its catalog for Ampere and newer (docs.nvidia.com/deploy/xid-errors). Numbers
/// whose first action there is to reset or replace the device, or that report memory it could not correct,
/// are `hardware`, but those of its firmware are `unclear`; "restart the application" is `application` where
/// programs can cause it. What is not in the table is `unclear`.
XidMeaning xid_meaning(unsigned xid);

}  // namespace egt
