// Making single instruments. A family is declared where its first child is: same name, same family.
#pragma once

#include <string>

#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace cuvil::ops {

inline prometheus::Counter* MakeCounter(prometheus::Registry* registry, const char* name,
                                        const char* help, const prometheus::Labels& labels) {
  return &prometheus::BuildCounter().Name(name).Help(help).Register(*registry).Add(labels);
}

inline prometheus::Gauge* MakeGauge(prometheus::Registry* registry, const char* name,
                                    const char* help, const prometheus::Labels& labels) {
  return &prometheus::BuildGauge().Name(name).Help(help).Register(*registry).Add(labels);
}

inline prometheus::Histogram* MakeHistogram(
    prometheus::Registry* registry, const char* name, const char* help,
    const prometheus::Labels& labels, const prometheus::Histogram::BucketBoundaries& buckets) {
  return &prometheus::BuildHistogram().Name(name).Help(help).Register(*registry).Add(labels,
                                                                                     buckets);
}

}  // namespace cuvil::ops
