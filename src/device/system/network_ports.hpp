#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace egt {

/// A network port of this node.
struct NetworkPort {
  std::string name;  ///< "eth0", "mlx5_0/1"
  double bits_per_second = 0;
  bool infiniband = false;  ///< InfiniBand or RoCE
};

/// The ports that are up and report their speed in sysfs, sorted by name. Only hardware ports, since the
/// speed of a bridge or veth is meaningless. `root` replaces /.
std::vector<NetworkPort> read_network_ports(const std::filesystem::path& root = "/");

}  // namespace egt
