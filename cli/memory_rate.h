// How fast this machine reads memory: the bound under every decode step.
#pragma once

namespace cuvil::cli {

// Gigabytes (1e9 bytes) per second that `threads` threads read together from memory far larger than
// any cache; the best of a few passes. 0 when the memory for it is not to be had.
double MeasureReadRate(int threads);

}  // namespace cuvil::cli
