// Which field of a request an error is about: a payload of the status, which doors send in their
// own way. Names are those of the HTTP API's fields.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace cuvil::server {

// The same error, about `param`, unless it already names one. OK stays OK.
absl::Status WithParam(std::string_view param, absl::Status status);
// "": the error names none.
std::string ParamOf(const absl::Status& status);

}  // namespace cuvil::server
