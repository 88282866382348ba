// Status helpers over absl::Status. Three kinds of failure, three answers: the caller or the world
// is wrong -> a Status with one sentence (what, value, fix); our own bug -> CUVIL_CHECK, which
// prints and stops; a check too slow for release -> CUVIL_DCHECK.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace cuvil {

// Debian builds Abseil with its own string_view, which absl::StrCat wants.
inline absl::string_view Sv(std::string_view s) { return absl::string_view(s.data(), s.size()); }
inline std::string_view Sv(absl::string_view s) { return std::string_view(s.data(), s.size()); }

}  // namespace cuvil

// Returns the error upward.
#define RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                  \
    if (absl::Status cuvil_status_ = (expr); !cuvil_status_.ok()) return cuvil_status_; \
  } while (false)

#define CUVIL_CONCAT_INNER(a, b) a##b
#define CUVIL_CONCAT(a, b) CUVIL_CONCAT_INNER(a, b)

// ASSIGN_OR_RETURN(auto x, F()): names the value or returns the error upward.
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL(CUVIL_CONCAT(cuvil_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr)    \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = *std::move(tmp)

// Stops the process: only for states that mean a bug of ours, never for input from outside.
#define CUVIL_CHECK(cond, why)                                                          \
  do {                                                                                  \
    if (!(cond)) {                                                                      \
      std::fprintf(stderr, "%s:%d: check failed: %s (%s)\n", __FILE__, __LINE__, #cond, \
                   std::string(why).c_str());                                           \
      std::abort();                                                                     \
    }                                                                                   \
  } while (false)

#ifdef CUVIL_DCHECK
#define CUVIL_DCHECK_THAT(cond, why) CUVIL_CHECK(cond, why)
#else
#define CUVIL_DCHECK_THAT(cond, why) \
  do {                               \
  } while (false)
#endif
