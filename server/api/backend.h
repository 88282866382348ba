// What the doors see of the models: lookup, submission, life cycle, load. An interface, so that
// doors are tested with a fake that needs no model. Every method may be called from any thread and
// none blocks on a step, a file or a compilation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/api/request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace cuvil::server {

enum class ModelState : uint8_t { kUnloaded, kLoading, kReady, kSleeping, kUnloading, kFailed };
std::string_view StateName(ModelState state);

struct ModelInfo {
  std::string name;  // what requests say
  ModelState state = ModelState::kUnloaded;
  std::string architecture;
  std::string error;         // of the last load or wake-up, when it failed
  double load_fraction = 0;  // while loading, 0..1
  int64_t created = 0;       // seconds since 1970: when it was loaded
  int64_t context = 0, vocab_size = 0, embedding_size = 0;
  int64_t memory_bytes = 0;  // while loaded, by the plan: weights, pages, workspace, code
  std::string digest;        // of the file's identity; changes when the file does
};

// What a door needs of a ready model. Immutable; stays valid after an unload.
class ServedModel {
 public:
  virtual ~ServedModel() = default;
  virtual const ModelInfo& info() const = 0;
  virtual const std::shared_ptr<const text::Tokenizer>& tokenizer() const = 0;
  virtual const text::ChatTemplate* chat_template() const = 0;  // null: the model has none
};

struct Load {
  int64_t running = 0, waiting = 0;  // requests
  int64_t pages_total = 0, pages_used = 0, pages_cached = 0;
  int page_tokens = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::vector<ModelInfo> Models() const = 0;
  // A ready model by name, or the default one for "". NotFound (with the closest name) for an
  // unknown one; Unavailable while it loads, sleeps or failed to load: with lazy loading on, the
  // call starts the load.
  virtual absl::StatusOr<std::shared_ptr<const ServedModel>> Find(std::string_view name) = 0;

  // Accepts the request or says at once why not: InvalidArgument, NotFound, ResourceExhausted
  // (queue full: try again later), Unavailable (loading, draining). Once accepted, `sink` gets a
  // last event with done set, whatever happens. Returns a handle for Abort.
  virtual absl::StatusOr<uint64_t> Submit(GenerateRequest request,
                                          std::shared_ptr<AnswerSink> sink) = 0;
  // The client is gone, or asked. Idempotent; unknown handles are ignored. The last event has
  // status Cancelled.
  virtual void Abort(uint64_t handle) = 0;

  // For a door that has not parsed the request yet: what every model would refuse even the least
  // one with, so that shedding load is cheap; OK where the request has to be looked at. Deadline 0:
  // none.
  virtual absl::Status CheckRoom(int64_t deadline_ms) const = 0;

  virtual absl::StatusOr<Load> GetLoad(std::string_view model) const = 0;

  // Life cycle; each starts the work and returns. Progress is in Models().
  virtual absl::Status LoadModel(std::string_view name) = 0;
  virtual absl::Status UnloadModel(std::string_view name) = 0;
  virtual absl::Status Sleep(std::string_view name) = 0;  // drops weights and pages, keeps code
  virtual absl::Status Wake(std::string_view name) = 0;

  virtual bool started() const = 0;  // every model that should be loaded at start is, or failed
  virtual bool ready() const = 0;    // takes requests: a model is ready and no drain has begun
  virtual bool alive() const = 0;    // steps make progress (the watchdog's view)
  virtual bool draining() const = 0;
};

}  // namespace cuvil::server
