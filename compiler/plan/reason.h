// Why a group of operations became one launch, in a sentence for people (Decision::reason).
// Pure function, any thread.
#pragma once

#include <string_view>

#include "compiler/passes/partition.h"

namespace cuvil::plan {

std::string_view ReasonFor(const passes::Group& group);

}  // namespace cuvil::plan
