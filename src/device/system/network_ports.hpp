#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace egt {

/// A network port of this host.
struct NetworkPort {
  std::string name;  ///< "eth0", "mlx5_0/1"
  double bits_per_second = 0;
  bool infiniband = false;  ///< InfiniBand or RoCE
};

/// The ports that are up and report their speed, as sysfs knows them: of hardware only (a bridge's or a
/// veth's speed says nothing), in the order of their names. `root` stands for /.
std::vector<NetworkPort> read_network_ports(const std::filesystem::path& root = "/");

}  // namespace egt
