// The OpenAPI document: what the tables of fields and the list of routes say, in the form that
// client generators and fuzzers read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cuvil::server::openai {

struct PathDoc {
  std::string path;
  bool is_post = false;
  std::string doc;
  bool needs_key = true;
};

std::string OpenApi(const std::vector<PathDoc>& paths, std::string_view version);

}  // namespace cuvil::server::openai
