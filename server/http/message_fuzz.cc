// Any bytes from a connection, whole and cut into pieces: the same messages come out, within their
// limits, and a refused connection gives no further message.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/http/address.h"
#include "server/http/admission.h"
#include "server/http/message_reader.h"

namespace {

using cuvil::server::http::MessageReader;
using cuvil::server::http::RequestHead;

constexpr size_t kHeadMax = 2048;
constexpr size_t kBodyMax = 512;

struct Message {
  std::string path, body;
  size_t fields;
  friend bool operator==(const Message&, const Message&) = default;
};

std::vector<Message> ReadAll(std::string_view bytes, size_t piece, int* status) {
  using State = MessageReader::State;
  static const cuvil::server::http::Options options;
  static const cuvil::server::http::Authorizer everybody;
  std::vector<Message> messages;
  MessageReader reader(kHeadMax);
  while (!bytes.empty() && reader.state() != State::kFailed) {
    size_t took = reader.Feed(bytes.substr(0, piece));
    bytes.remove_prefix(took);
    if (reader.state() == State::kHeadDone) {
      const auto admission = Admit(reader.head(), {.options = &options, .authorizer = &everybody});
      CUVIL_CHECK(admission.match.route != nullptr, "a route, if only the one for none");
      reader.AcceptBody(kBodyMax);
    }
    if (reader.state() == State::kDone) {
      RequestHead head;
      std::string body;
      CUVIL_CHECK(reader.bytes_read() < kHeadMax + kBodyMax + (512 << 10), "the budget");
      reader.Next(&head, &body);
      CUVIL_CHECK(body.size() <= kBodyMax, "the body's limit");
      CUVIL_CHECK(!head.chunked || !head.has_length, "one framing");
      messages.push_back({head.path, body, head.fields.size()});
    }
  }
  *status = reader.refusal().status;
  CUVIL_CHECK((*status != 0) == (reader.state() == State::kFailed), "a reason to fail");
  return messages;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  int status = 0, other = 0;
  const std::vector<Message> whole = ReadAll(bytes, bytes.size(), &status);
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{64}}) {
    CUVIL_CHECK(ReadAll(bytes, piece, &other) == whole, "cuts change nothing");
    // Which rule a bad head breaks first may depend on what has come; that it is bad may not.
    CUVIL_CHECK((other == 0) == (status == 0), "cuts change no verdict");
  }
  cuvil::server::http::HostName(bytes);
  return 0;
}
