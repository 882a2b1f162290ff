#pragma once

#include <cstdint>
#include <vector>

namespace egt {

/// Layers [first, end) of a network, counted from 0.
struct LayerRange {
  int first = 0, end = 0;

  int count() const { return end - first; }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

/// [first, first + count) of a layer's outputs or inputs.
struct NeuronRange {
  std::int64_t first = 0, count = 0;
};
/// Divides `neurons` into `parts` ranges in order, and returns range `part`. Sizes differ by one at most.
NeuronRange part_of(std::int64_t neurons, int parts, int part);

/// Layers are split in pairs (Shoeybi et al., "Megatron-LM", 2019): the first of a pair by its outputs, the
/// second by its inputs. So a pair needs one all-reduce forward and one backward. An unpaired last layer is
/// replicated on every rank.
enum class LayerSplit { none, by_outputs, by_inputs };
/// `layers`: number of layers of the whole network. `tensor`: tensor-parallel parts per layer.
LayerSplit split_of(int layer, int layers, int tensor);

/// The part of a network on one rank: of each layer in `layers`, tensor-parallel part `part` of `tensor`.
struct NetworkPart {
  std::vector<std::int64_t> neurons;  ///< neurons of the whole network, input first
  LayerRange layers;
  int tensor = 1, part = 0;
  std::size_t passes = 1;  ///< passes whose activations are kept at the same time

  int all_layers() const { return static_cast<int>(neurons.size()) - 1; }
  bool has_input() const { return layers.first == 0; }
  bool has_loss() const { return layers.end == all_layers(); }
  /// Layer l counts from layers.first.
  LayerSplit split(std::size_t l) const {
    return split_of(layers.first + static_cast<int>(l), all_layers(), tensor);
  }
  /// Rows and columns of the whole weight matrix of layer l that this part holds.
  NeuronRange outputs(std::size_t l) const;
  NeuronRange inputs(std::size_t l) const;
  /// Neurons on this rank per layer: the inputs of the first layer, then the outputs of each layer.
  std::vector<std::int64_t> local_neurons() const;
};

}  // namespace egt
