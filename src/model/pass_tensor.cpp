#include "model/pass_tensor.hpp"

#include <fmt/format.h>

namespace egt {

std::string to_string(const PassTensor& tensor) {
  constexpr const char* names[] = {"product",
                                   "extreme term",
                                   "activation",
                                   "output gradient",
                                   "input product",
                                   "weight gradient",
                                   "input gradient",
                                   "compressed gradient",
                                   "gradient after compression",
                                   "all-reduce's input",
                                   "all-reduce's result"};
  if (tensor.layer < 0) return "the network's input";
  return fmt::format("{} of layer {}", names[static_cast<int>(tensor.kind)], tensor.layer + 1);
}

std::string to_string(const StateTensor& tensor) {
  constexpr const char* names[] = {"weights", "first moment", "second moment"};
  return fmt::format("{} of layer {}", names[static_cast<int>(tensor.kind)], tensor.layer + 1);
}

}  // namespace egt
