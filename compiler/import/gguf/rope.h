// Rotary position embedding: from metadata to one frequency per rotated pair.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "compiler/import/gguf/arch.h"
#include "compiler/import/gguf/config.h"
#include "compiler/import/gguf/file.h"

namespace cuvil::gguf {

// Reads the rope part of a config whose sizes are already known.
absl::StatusOr<RopeConfig> ReadRope(const File& file, const Arch& arch, const ModelConfig& config);

// Radians per position of each of the rope.dim/2 pairs of `layer`, scaling included: the pair at
// position p turns by p * frequency. Element i has exponent -2i/dim before scaling.
std::vector<double> RopeFrequencies(const ModelConfig& config, int64_t layer);

// What the cosines and sines of `layer` are multiplied by; 1 except under YaRN.
double RopeMagnitude(const ModelConfig& config, int64_t layer);

}  // namespace cuvil::gguf
