// Events of a request to messages of cuvil.v1. Pure functions; any thread.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "proto/cuvil/v1/cuvil.pb.h"
#include "server/api/request.h"
#include "text/tokenizer.h"

namespace cuvil::server::grpc {

struct EventWriter {
  std::string request_id;
  bool logprobs = false;
  std::shared_ptr<const text::Tokenizer> tokenizer;  // for the spelling of tokens with logprobs

  // One message for each thing that has happened, in order; Done last, when `events` ends well.
  void Append(const Events& events, std::deque<v1::GenerateResponse>* out) const;
};

void WriteUsage(const Usage& usage, v1::Usage* out);

// Bytes that are no UTF-8 become U+FFFD, one for each.
std::string WholeUtf8(std::string_view bytes);

}  // namespace cuvil::server::grpc
